package headwater.adapters

import headwater.InvalidOptionException

/** The options of a table in Spark's session catalog, `CREATE TABLE … USING … OPTIONS (…)`.
  *
  * Spark passes all properties of such a table as options: those of `OPTIONS` by their names and once more with a prefix,
  * its own, and the folder that it made for the table.
  */
private[adapters] object CatalogOptions {
  private val Prefix = "option."

  /** None if these are the options of `format(…)`. */
  def of(properties: Map[String, String]): Option[Map[String, String]] = {
    val options = properties.collect {
      case (name, value) if name.startsWith(Prefix) => name.drop(Prefix.length) -> value
    }
    Option
      .when(properties.contains("provider") && (options.nonEmpty || properties.contains("owner")))(options)
  }

  /** Refuses what a table cannot be. */
  def check(stream: LoadedStream): LoadedStream = stream match {
    case feed: LoadedFeed =>
      feed.literalSecrets.foreach { option =>
        throw new InvalidOptionException(
          s"Option '$option' of source '${feed.name}' is a secret, and a table would store it as text. Write a reference: " +
            s"'env:NAME' for an environment variable, 'file:PATH' for a file."
        )
      }
      feed
    case partitions: LoadedPartitions =>
      throw new InvalidOptionException(
        s"Source '${partitions.name}' is partitioned, and only feeds can be tables. Read it with " +
          s"spark.readStream.format(\"${partitions.name}\")."
      )
  }
}
