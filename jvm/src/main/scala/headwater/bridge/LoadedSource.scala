package headwater.bridge

import com.fasterxml.jackson.databind.node.ObjectNode
import headwater.core.{BufferedOptions, PartitionedOptions, PythonOptions}
import org.apache.spark.sql.types.StructType

/** A source in Python, as Python described it in its response to `load`.
  *
  * @param description
  *   what progress reports and the UI show; it must contain no secret
  * @param request
  *   the request that loaded it; the request that opens it starts from a copy
  * @param hasGaps
  *   not every offset is a row; for partitioned sources
  * @param literalSecrets
  *   options that hold a secret itself, not a reference to it
  * @param identity
  *   the options that must not change between restarts
  */
private[headwater] final case class LoadedSource(
    name: String,
    schema: StructType,
    arrowSchema: Array[Byte],
    description: String,
    request: ObjectNode,
    options: Either[PartitionedOptions, FeedOptions],
    isResumable: Boolean,
    hasAck: Boolean,
    hasGaps: Boolean,
    literalSecrets: Seq[String],
    identity: Map[String, String]
)

/** The options of a source that runs as a feed. */
private[headwater] final case class FeedOptions(buffered: BufferedOptions, python: PythonOptions)
