package headwater

import java.util.Properties

/** The version of this jar, so that the Python package can reject another version. */
object Version {

  /** As in `python/headwater/_version.py` when the jar was built. */
  val current: String = {
    val in = getClass.getResourceAsStream("/headwater/version.properties")
    try {
      val properties = new Properties
      properties.load(in)
      properties.getProperty("version")
    } finally in.close()
  }
}
