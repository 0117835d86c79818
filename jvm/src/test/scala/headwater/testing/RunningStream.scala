package headwater.testing

import headwater.adapters.StreamAdapter
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation
import org.apache.spark.sql.execution.streaming.{StreamExecution, StreamingExecutionRelation}

/** The first stream of a query that runs. */
object RunningStream {
  def of(query: StreamExecution): StreamAdapter[_] =
    query.logicalPlan.collectFirst {
      case v1: StreamingExecutionRelation => v1.source
      case v2: StreamingDataSourceV2ScanRelation => v2.stream
    }.get match {
      case ours: StreamAdapter[_] => ours
      case other => throw new IllegalArgumentException(s"not a stream of ours: $other")
    }
}
