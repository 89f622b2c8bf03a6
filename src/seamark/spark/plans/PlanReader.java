package seamark.spark.plans;

/** Tells what Spark plans and commits for a running batch, as text. */
public class PlanReader {
  private final Class writer;

  /** What writes state is of this class, whose package differs between the versions of Spark. */
  public PlanReader(Class writer) {
    this.writer = writer;
  }

  static Object ask(Object of, String what) throws Exception {
    return of.getClass().getMethod(what, new Class[0]).invoke(of, new Object[0]);
  }

  static Object planOf(Object query) throws Exception {
    return ask(ask(query, "lastExecution"), "executedPlan");
  }

  static Object hidden(Object node) throws Exception {
    String kind = node.getClass().getSimpleName();
    if (kind.equals("ReusedExchangeExec")) return ask(node, "child");
    if (kind.equals("AdaptiveSparkPlanExec")) return ask(node, "executedPlan");
    if (kind.equals("ShuffleQueryStageExec")) return ask(node, "plan");
    if (kind.equals("BroadcastQueryStageExec")) return ask(node, "plan");
    if (kind.equals("TableCacheQueryStageExec")) return ask(node, "plan");
    if (kind.equals("InMemoryTableScanExec")) return ask(ask(node, "relation"), "cachedPlan");
    return null;
  }

  static String watermark(Object node) throws Exception {
    try {
      return String.valueOf(ask(node, "eventTimeWatermarkForEviction"));
    } catch (NoSuchMethodException e) {
      return "None";
    }
  }

  void nodes(Object given, int depth, StringBuilder shape, StringBuilder marks)
      throws Exception {
    org.apache.spark.sql.execution.SparkPlan node =
        (org.apache.spark.sql.execution.SparkPlan) given;
    String name = node.nodeName().replace('\n', ' ');
    String operator = "-";
    if (writer.isInstance(given)) {
      operator = String.valueOf(ask(ask(node, "getStateInfo"), "operatorId"));
      marks.append(operator).append(' ').append(watermark(node)).append(' ').append(name);
      marks.append('\n');
    }
    String mark = name.equals("EventTimeWatermark") ? String.valueOf(ask(node, "nodeId")) : "-";
    shape.append(depth).append(' ').append(operator).append(' ').append(mark).append(' ');
    shape.append(name).append('\n');
    scala.collection.Seq children = (scala.collection.Seq) node.children();
    for (int at = 0; at < children.size(); at++) {
      nodes(children.apply(at), depth + 1, shape, marks);
    }
    Object inner = children.isEmpty() ? hidden(given) : null;
    if (inner != null) nodes(inner, depth + 1, shape, marks);
  }

  public String plan(Object query) throws Exception {
    StringBuilder shape = new StringBuilder();
    StringBuilder marks = new StringBuilder();
    nodes(planOf(query), 0, shape, marks);
    return shape.append('\n').append(marks).toString();
  }

  void ids(Object given, StringBuilder text) throws Exception {
    if (writer.isInstance(given)) {
      Object operator = ask(ask(given, "getStateInfo"), "operatorId");
      Object[] infos = (Object[]) ask(given, "getStateStoreCheckpointInfo");
      for (int at = 0; at < infos.length; at++) {
        text.append(operator).append(' ').append(ask(infos[at], "partitionId"));
        scala.Option ids = (scala.Option) ask(infos[at], "stateStoreCkptId");
        Object[] each = ids.isDefined() ? (Object[]) ids.get() : new Object[0];
        for (int id = 0; id < each.length; id++) text.append(' ').append(each[id]);
        text.append('\n');
      }
    }
    scala.collection.Seq children =
        (scala.collection.Seq) ((org.apache.spark.sql.execution.SparkPlan) given).children();
    for (int at = 0; at < children.size(); at++) ids(children.apply(at), text);
  }

  public String stateIds(Object query) throws Exception {
    StringBuilder text = new StringBuilder();
    ids(planOf(query), text);
    return text.toString();
  }

  public String moveWatermark(Object query) throws Exception {
    Class plan = Class.forName("org.apache.spark.sql.execution.SparkPlan");
    Object tracker = ask(query, "watermarkTracker");
    Object[] of = new Object[] { planOf(query) };
    tracker.getClass().getMethod("updateWatermark", new Class[] { plan }).invoke(tracker, of);
    String moved = String.valueOf(ask(tracker, "currentWatermark"));
    try {
      return moved + ' ' + ask(tracker, "watermarkMap");
    } catch (NoSuchMethodException e) {
      return moved;
    }
  }
}
