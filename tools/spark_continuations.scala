/* The part of tools/spark_continuations.py that runs in Spark: streaming queries of many kinds.
 *
 * A file names a query and a checkpoint directory a line; each is started there, given new input,
 * and what it did goes to another file. Much of this only Scala can say: memory streams, whose
 * offsets are plain numbers, and functions over typed groups.
 */
package seamark.tools

import java.io.{File, PrintWriter}
import java.util.{LinkedHashMap, List => JavaList, Map => JavaMap}

import scala.collection.mutable
import scala.concurrent.{Await, ExecutionContext, Future}
import scala.concurrent.duration._
import scala.io.Source
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import org.apache.spark.SparkThrowable
import org.apache.spark.sql.{DataFrame, Dataset, Encoder, Encoders, SparkSession, SQLContext}
import org.apache.spark.sql.execution.streaming.runtime.MemoryStream
import org.apache.spark.sql.functions._
import org.apache.spark.sql.streaming._

/** A query with its input: `past` is what it had read, step by step, and `next` is new. */
case class Query(frame: DataFrame, mode: String, past: Seq[() => Unit], next: Seq[() => Unit])

case class Count(count: Long)

/** How often each word came. */
class RunningCount extends StatefulProcessor[String, String, (String, String)] {
  @transient private var counted: ValueState[Long] = _

  override def init(mode: OutputMode, time: TimeMode): Unit =
    counted = getHandle.getValueState[Long]("countState", Encoders.scalaLong, TTLConfig.NONE)

  override def handleInputRows(
      key: String, rows: Iterator[String], timers: TimerValues): Iterator[(String, String)] = {
    val now = counted.get() + rows.size
    counted.update(now)
    Iterator((key, now.toString))
  }
}

/** All queries by name. The input of each ends where its directories in Spark's tests do. */
class Queries(spark: SparkSession) {
  import spark.implicits._
  private implicit val context: SQLContext = spark.sqlContext

  def named(name: String): Option[Query] = name match {
    case "values" =>
      Some(fed("append", (0 to 4).map(Seq(_)), Seq(Seq(7), Seq(8, 8)))(_.toDF()))
    case "count" => Some(counted("update", Seq(Seq(3), Seq(3, 2))))
    case "count-complete" =>
      Some(counted("complete", Seq(Seq(1, 2, 3, 4), Seq(3, 4, 5, 6), Seq(5, 6, 7, 8))))
    case "count-pairs" => Some(paired("update")(_.groupBy("_1").count()))
    case "distinct-pairs" => Some(paired("append")(_.dropDuplicates("_1")))
    case "limit" => Some(fed("append", threes, Seq(Seq((13, 13L)), Seq((14, 14L))))(_.toDF().limit(10)))
    case "count-repartitioned" =>
      Some(multiples("update", Seq(Seq(3), Seq(3, 2)))(
        _.repartition($"key1").groupBy("key1", "key2").agg(count("*"))))
    case "distinct-repartitioned" =>
      Some(multiples("update", Seq(Seq(1, 1, 2), Seq(3, 4)))(
        _.repartition($"key1").dropDuplicates("key1", "key2")))
    case "distinct" => Some(multiples("append", Seq(Seq(1, 1, 2, 3, 4)))(_.dropDuplicates("key1", "key2")))
    case "distinct-words" =>
      val next = Seq(Seq(("a", 5), ("b", 2), ("c", 9)), Seq(("c", 1), ("d", 4)))
      Some(fed("append", Seq(Seq(("a", 1)), Seq(("a", 2), ("b", 3))), next)(_.toDF().dropDuplicates("_1")))
    case "distinct-rows" => Some(distinctRows)
    case "windows" => Some(windows)
    case "two-watermarks" => Some(twoWatermarks)
    case "sessions" => Some(sessions)
    case "common-functions" => Some(commonFunctions)
    case "statistics" => Some(statistics)
    case "sum-decimal" => Some(sumDecimal)
    case "join" => Some(joined((1 to 15).grouped(5).toSeq))
    case "join-once" => Some(joined(Seq(1 to 5)))
    case "latest-event" => Some(latestEvent)
    case "groups" => Some(groups(initial = false))
    case "groups-begun" => Some(groups(initial = true))
    case "transform" =>
      val next = Seq(Seq("a", "c"), Seq("b", "a"))
      Some(fed("update", Seq(Seq("a"), Seq("a", "b")), next)(
        _.groupByKey(word => word)
          .transformWithState(new RunningCount, TimeMode.None(), OutputMode.Update()).toDF()))
    case "kafka" => spark.conf.getOption("seamark.kafka").map(kafka)
    case _ => None
  }

  private def fed[A: Encoder](mode: String, past: Seq[Seq[A]], next: Seq[Seq[A]])(
      build: Dataset[A] => DataFrame): Query = {
    val stream = MemoryStream[A]
    def adding(rows: Seq[A]): () => Unit = () => stream.addData(rows)
    Query(build(stream.toDS()), mode, past.map(adding), next.map(adding))
  }

  private def counted(mode: String, past: Seq[Seq[Int]]): Query =
    fed(mode, past, Seq(Seq(3, 2, 1), Seq(9, 9, 3)))(_.toDF().groupBy("value").agg(count("*")))

  private val threes = (1 to 12).map(n => (n, n.toLong)).grouped(3).toSeq

  private def paired(mode: String)(build: DataFrame => DataFrame): Query = {
    val past = (1 to 4).map(first => (first to first + 2).map(n => (n, n.toLong)))
    fed(mode, past, Seq((1 to 7).map(n => (n, n.toLong)), Seq((7, 7L), (8, 8L))))(rows => build(rows.toDF()))
  }

  private def multiples(mode: String, past: Seq[Seq[Int]])(build: DataFrame => DataFrame): Query =
    fed(mode, past, Seq(Seq(3, 2, 5, 1), Seq(5, 6, 4)))(rows =>
      build(rows.selectExpr("value AS key1", "value * 2 AS key2", "value * 3 AS value")))

  private def distinctRows: Query =
    fed("append", Seq(0L to 4L), Seq(0L to 6L, 5L to 8L))(
      _.selectExpr("value", "value + 10 AS key", "string(value) AS topic",
        "value + 100 AS partition", "value + 5 AS offset").dropDuplicates())

  private def windows: Query =
    fed("append", Seq(Seq(15), Seq(10, 12, 14)), Seq(Seq(25), Seq(50), Seq(70)))(
      _.withColumn("at", timestamp_seconds($"value"))
        .withWatermark("at", "10 seconds")
        .groupBy(window($"at", "5 seconds"))
        .agg(count("*").as("rows"))
        .selectExpr("bigint(window.start) AS start", "rows"))

  private def twoWatermarks: Query = {
    val (first, second) = (MemoryStream[Int], MemoryStream[Int])
    def late(stream: MemoryStream[Int], delay: Int): DataFrame =
      stream.toDF().withColumn("at", timestamp_seconds($"value")).withWatermark("at", s"$delay seconds")
    val past = Seq(() => { first.addData(20); second.addData(30); () }, () => { first.addData(10); () })
    val next = Seq(() => { first.addData(120); second.addData(130); () }, () => { second.addData(150); () })
    Query(late(first, 10).union(late(second, 15)).selectExpr("int(at) AS at"), "append", past, next)
  }

  private def sessions: Query = {
    val past = Seq(("hello world spark streaming", "key1", 40L), ("world hello structured streaming", "key2", 41L))
    val next = Seq(Seq(("spark streaming", "key1", 25L)), Seq(("spark", "key2", 95L)), Seq(("end", "key1", 300L)))
    fed("append", Seq(past), next)(
      _.toDF("words", "user", "second")
        .withColumn("at", $"second".cast("timestamp"))
        .withWatermark("at", "30 seconds")
        .selectExpr("explode(split(words, ' ')) AS session", "user", "at")
        .repartition($"user")
        .groupBy(session_window($"at", "10 seconds").as("span"), $"session", $"user")
        .agg(count("*").as("events"))
        .selectExpr("session", "user", "bigint(span.start) AS start", "bigint(span.end) AS end", "events"))
  }

  private def commonFunctions: Query = {
    val functions = Seq(
      "avg(value)", "avg(float(value))", "avg(double(value))", "avg(cast(value AS decimal))",
      "count(value)", "first(value)", "first(pair)", "last(value)", "last(pair)",
      "min(struct(value, string(value) AS str))", "max(value)", "sum(value)", "sum(float(value))",
      "sum(double(value))", "collect_list(value)", "collect_set(value % 3)")
    aggregated(functions, 5)(
      _.selectExpr("*", "named_struct('key', string(value), 'value', value) AS pair"))
  }

  private def sumDecimal: Query =
    aggregated(Seq("sum(cast(value AS decimal))", "collect_list(value)"), 2)(identity)

  private def aggregated(functions: Seq[String], groups: Int)(more: DataFrame => DataFrame): Query =
    fed("complete", Seq(0 to 9), Seq(10 to 19, Seq(3, 40)))(rows => {
      val columns = functions.zipWithIndex.map { case (text, at) => expr(text).as(s"f$at") }
      more(rows.selectExpr("value", s"value % $groups AS id"))
        .groupBy("id").agg(columns.head, columns.tail: _*)
    })

  private def statistics: Query = {
    val distinct = Seq("value % 3", "float(value)", "double(value)", "cast(value AS decimal)", "string(value)")
    val functions = Seq("kurtosis(double(value))", "skewness(double(value))") ++
      distinct.map(column => s"approx_count_distinct($column)") ++
      Seq("stddev_pop", "stddev_samp", "var_pop", "var_samp").map(name => s"$name(double(value))") ++
      Seq("covar_pop", "covar_samp", "corr").map(name => s"$name(value, value % 3)")
    val columns = functions.zipWithIndex.map { case (text, at) => expr(text).as(s"f$at") }
    fed("complete", Seq(0L to 9L), Seq(10L to 19L, Seq(3L, 40L)))(
      _.selectExpr("value", "value % 5 AS id").groupBy("id").agg(columns.head, columns.tail: _*))
  }

  private def joined(past: Seq[Seq[Int]]): Query = {
    val last = past.last.last
    val next = Seq(last - 4 to last + 5, last + 4 to last + 30) // all that the state still has first
    def pairs(batch: Seq[Int]): Seq[(Int, Long)] = batch.map(n => (n, n.toLong))
    fed("append", past.map(pairs), next.map(pairs))(rows => {
      val timed = rows.select($"_1".as("id"), timestamp_seconds($"_2").as("at"))
      val left = timed.select($"id".as("leftId"), $"at".as("leftTime"))
      val right = timed.where("id % 2 = 0").select($"id".as("rightId"), $"at".as("rightTime"))
      left.withWatermark("leftTime", "5 seconds")
        .join(right.withWatermark("rightTime", "5 seconds"), expr(
          "rightId = leftId AND rightTime >= leftTime AND rightTime <= leftTime + interval 5 seconds"))
        .selectExpr("leftId", "int(leftTime) AS leftTime", "rightId", "int(rightTime) AS rightTime")
    })
  }

  /** The newest time of each key, until it is five seconds behind the watermark. */
  private def latestEvent: Query = {
    val newest = (key: String, rows: Iterator[(String, Long)], state: GroupState[Long]) =>
      if (state.hasTimedOut) {
        val ended = state.get
        state.remove()
        Iterator((key, -ended))
      } else {
        val at = (rows.map(_._2) ++ state.getOption).max
        state.update(at)
        state.setTimeoutTimestamp((at + 5) * 1000)
        Iterator((key, at))
      }
    val past = Seq(Seq(("a", 11), ("a", 13), ("a", 15)), Seq(("a", 4)))
    fed("update", past, Seq(Seq(("a", 10)), Seq(("b", 31)), Seq(("b", 60))))(
      _.select($"_1".as("key"), timestamp_seconds($"_2").as("at"))
        .withWatermark("at", "10 seconds")
        .as[(String, Long)]
        .groupByKey(_._1)
        .flatMapGroupsWithState(OutputMode.Update(), GroupStateTimeout.EventTimeTimeout)(newest)
        .toDF())
  }

  /** Rows of each key. Time-outs that were set long ago come; no new ones, for they name the time. */
  private def groups(initial: Boolean): Query = {
    val counting =
      (key: (String, String), rows: Iterator[(String, String, Long)], state: GroupState[Count]) =>
        if (state.hasTimedOut) {
          val ended = state.get.count
          state.remove()
          Iterator((key, s"ended at $ended"))
        } else {
          val now = state.getOption.map(_.count).getOrElse(0L) + rows.size
          state.update(Count(now))
          Iterator((key, now.toString))
        }
    val timeout = GroupStateTimeout.ProcessingTimeTimeout
    val next = Seq(Seq(("a", "a", 1L), ("a", "b", 1L)), Seq(("b", "a", 2L), ("a", "b", 3L)))
    fed("update", Seq(Seq(("a", "a", 1L))), next)(rows => {
      val keyed = rows.toDF("key1", "key2", "second")
        .selectExpr("key1", "key2", "timestamp_seconds(second) AS at")
        .withWatermark("at", "10 seconds")
        .as[(String, String, Long)]
        .repartition($"_1")
        .groupByKey(row => (row._1, row._2))
      val counts = if (initial) {
        val begun = Seq(("c", "c", Count(2))).toDS().repartition($"_2")
          .groupByKey(row => (row._1, row._2)).mapValues(_._3)
        keyed.flatMapGroupsWithState(OutputMode.Update(), timeout, begun)(counting)
      } else {
        keyed.flatMapGroupsWithState(OutputMode.Update(), timeout)(counting)
      }
      counts.toDF()
    })
  }

  private def kafka(servers: String): Query = {
    val rows = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
      .option("subscribe", spark.conf.get("seamark.kafka.topic"))
      .option("startingOffsets", "earliest").load()
    val values = rows.dropDuplicates().selectExpr("string(value) AS value", "partition", "offset")
    Query(values, "append", Seq(), Seq(() => ()))
  }
}

/** Where a query is started, and the options of its writer. */
case class Place(folder: String, options: mutable.Map[String, String])

/** Starts what the lines of the first file ask for, and writes a line for each to the second. */
object Continuations {
  private val json = new ObjectMapper()
  private val patience = 3.minutes

  def main(arguments: Array[String]): Unit = {
    val spark = SparkSession.builder().getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    val out = new PrintWriter(arguments(1), "UTF-8")
    val lines = Source.fromFile(arguments(0), "UTF-8")
    for (line <- lines.getLines()) {
      val asked = json.readValue(line, classOf[JavaMap[String, AnyRef]]).asScala
      val session = spark.newSession()
      for ((key, value) <- asked("settings").asInstanceOf[JavaMap[String, String]].asScala) {
        session.conf.set(key, value)
      }
      val options = asked("options").asInstanceOf[JavaMap[String, String]].asScala
      val place = Place(asked("folder").toString, options)
      val told = new Queries(session).named(asked("query").toString).map(ran(session, place, _))
      out.println(json.writeValueAsString(told.getOrElse(new LinkedHashMap[String, AnyRef]())))
      out.flush()
    }
    lines.close()
    out.close()
    spark.stop()
  }

  private def ran(spark: SparkSession, place: Place, query: Query): JavaMap[String, AnyRef] = {
    val told = new LinkedHashMap[String, AnyRef]()
    val batches = new mutable.LinkedHashMap[String, JavaList[String]]()
    val chain = failure(run(place, query, batches))
    told.put("errors", chain.map(named).asJava)
    told.put("message", chain.lastOption.map(message(_, place)).getOrElse(""))
    told.put("batches", batches.asJava)
    told.put("state", states(spark, place.folder).asJava)
    told
  }

  private def run(
      place: Place, query: Query, batches: mutable.Map[String, JavaList[String]]): Unit = {
    val isNew = !new File(place.folder, "offsets").exists()
    if (!isNew) query.past.foreach(_.apply())
    val keep: (DataFrame, Long) => Unit = (rows, batch) =>
      batches(batch.toString) = rows.toJSON.collect().sorted.toSeq.asJava
    val running = query.frame.writeStream.outputMode(query.mode).foreachBatch(keep)
      .options(place.options).option("checkpointLocation", place.folder).start()
    try {
      finish(running)
      for (feed <- if (isNew) query.past else query.next) {
        feed()
        finish(running)
      }
    } finally running.stop()
  }

  private def finish(running: StreamingQuery): Unit =
    Await.result(Future(running.processAllAvailable())(ExecutionContext.global), patience)

  /** What an action fails with, from the outermost error to the cause; empty if it does not. */
  private def failure(action: => Unit): Seq[Throwable] =
    try {
      action
      Seq()
    } catch {
      case error: Exception =>
        Iterator.iterate[Throwable](error)(_.getCause).takeWhile(_ != null).take(20).toSeq
    }

  private def named(error: Throwable): String = error match {
    case known: SparkThrowable if known.getCondition != null => known.getCondition
    case other => other.getClass.getName
  }

  private def message(error: Throwable, place: Place): String =
    String.valueOf(error.getMessage).linesIterator.nextOption().getOrElse("")
      .replace(place.folder, "")

  /** The rows of all state that Spark's reader finds, by operator and side of a join. */
  private def states(spark: SparkSession, folder: String): Map[String, JavaList[String]] = {
    // what a deduplication keeps beside its keys was a row before Spark 3.3, and is none today
    spark.conf.set("spark.sql.streaming.stateStore.formatValidation.enabled", "false")
    val operators = names(new File(folder, "state")).filter(_.forall(_.isDigit))
    operators.flatMap { operator =>
      val isJoin = names(new File(folder, s"state/$operator/0")).exists(_.startsWith("left-"))
      for (side <- if (isJoin) Seq("left", "right") else Seq("")) yield {
        val reader = spark.read.format("statestore").option("operatorId", operator)
        val sided = if (isJoin) reader.option("joinSide", side) else reader
        val whole = rowsOf(sided.load(folder))
        // the keys alone where Spark's reader does not understand what old versions kept with them
        val seen = if (whole.exists(_.startsWith("unreadable"))) {
          rowsOf(sided.load(folder).select("partition_id", "key"))
        } else whole
        s"$operator $side".trim -> seen.asJava
      }
    }.toMap
  }

  private def rowsOf(state: => DataFrame): Seq[String] = {
    var rows: Seq[String] = Nil
    val failed = failure { rows = state.toJSON.collect().sorted.toSeq }
    if (failed.isEmpty) rows else failed.map(error => s"unreadable: ${named(error)}")
  }

  private def names(folder: File): Seq[String] =
    Option(folder.list()).map(_.toSeq.sorted).getOrElse(Nil)
}
