package seamark.spark.plans;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.CommonExpressionDef;
import org.apache.spark.sql.catalyst.expressions.CommonExpressionId;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.ExpressionWithRandomSeed;
import org.apache.spark.sql.catalyst.expressions.GetArrayStructFields;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.NamedLambdaVariable;
import org.apache.spark.sql.catalyst.expressions.OuterReference;
import org.apache.spark.sql.catalyst.expressions.TimeZoneAwareExpression;
import org.apache.spark.sql.catalyst.expressions.With;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationDef;
import org.apache.spark.sql.catalyst.plans.logical.CTERelationRef;
import org.apache.spark.sql.catalyst.plans.logical.Expand;
import org.apache.spark.sql.catalyst.plans.logical.Generate;
import org.apache.spark.sql.catalyst.plans.logical.Join;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias;
import org.apache.spark.sql.catalyst.plans.logical.Union;
import org.apache.spark.sql.catalyst.plans.logical.WithCTE;
import org.apache.spark.sql.types.DataType;

/**
 * A digest of what expressions compute, down to the columns of sources: of all that their objects
 * hold, which is more than Spark's SQL of them says.
 *
 * Left out is what differs at every start (numbers, seeds, what a function is in memory), what
 * changes nothing (names of columns on the way), and what words tell where it matters: types,
 * options, and text that may be secret.
 */
public class ExpressionDigest {
  private final IdentityHashMap names = new IdentityHashMap();
  private final IdentityHashMap known = new IdentityHashMap();
  private final HashMap queries = new HashMap();
  private ArrayList variables = new ArrayList();

  /** Of a plan, whose leaves have these names, in their order. */
  public ExpressionDigest(Object plan, Object namesOfLeaves) {
    Object[] leaves = array(((LogicalPlan) plan).collectLeaves());
    for (int at = 0; at < leaves.length; at++) names.put(leaves[at], ((List) namesOfLeaves).get(at));
    findQueries((LogicalPlan) plan);
  }

  /** Of several expressions over the columns of a plan, in whatever order; "" if it is too deep. */
  public String of(Object expressions, Object below) throws Exception {
    try {
      ArrayList found = new ArrayList();
      Object[] each = ((List) expressions).toArray();
      for (int at = 0; at < each.length; at++) found.add(text(each[at], (LogicalPlan) below));
      Collections.sort(found);
      return digest(found.toString());
    } catch (StackOverflowError e) {
      known.clear(); // some columns are only begun
      variables = new ArrayList();
      return "";
    }
  }

  void findQueries(LogicalPlan plan) {
    if (plan instanceof WithCTE) {
      Object[] given = array(((WithCTE) plan).cteDefs());
      for (int at = 0; at < given.length; at++) {
        queries.put(Long.valueOf(((CTERelationDef) given[at]).id()), given[at]);
      }
    }
    Object[] children = array(plan.children());
    for (int at = 0; at < children.length; at++) findQueries((LogicalPlan) children[at]);
  }

  static Object[] array(Object seq) {
    scala.collection.Iterator each = ((scala.collection.Iterable) seq).iterator();
    ArrayList found = new ArrayList();
    while (each.hasNext()) found.add(each.next());
    return found.toArray();
  }

  static String digest(String text) throws Exception {
    java.security.MessageDigest sha = java.security.MessageDigest.getInstance("SHA-256");
    byte[] bytes = sha.digest(text.getBytes("UTF-8"));
    StringBuffer hex = new StringBuffer();
    for (int at = 0; at < 8; at++) hex.append(Integer.toHexString((bytes[at] & 255) + 256).substring(1));
    return hex.toString();
  }

  /** Where a column stands in the output of a plan; -1 where it does not. */
  static int place(Attribute column, LogicalPlan plan) {
    Object[] output = array(plan.output());
    for (int at = 0; at < output.length; at++) {
      if (((NamedExpression) output[at]).exprId().equals(column.exprId())) return at;
    }
    return -1;
  }

  /** What a column is made of that a plan, or one below it, has. */
  String column(Attribute column, LogicalPlan plan) throws Exception {
    HashMap columns = (HashMap) known.get(plan);
    if (columns == null) {
      columns = new HashMap();
      known.put(plan, columns);
    }
    Object key = column.exprId();
    if (!columns.containsKey(key)) {
      columns.put(key, "itself"); // a plan that refers to itself ends here
      ArrayList around = variables;
      variables = new ArrayList();
      columns.put(key, origin(column, plan));
      variables = around;
    }
    return (String) columns.get(key);
  }

  /** A digest; the same one for a column that is only passed on or renamed. */
  String origin(Attribute column, LogicalPlan plan) throws Exception {
    Object[] children = array(plan.children());
    if (plan instanceof Union) {
      int at = place(column, plan);
      ArrayList parts = new ArrayList();
      for (int child = 0; at >= 0 && child < children.length; child++) {
        LogicalPlan part = (LogicalPlan) children[child];
        parts.add(column((Attribute) array(part.output())[at], part));
      }
      Collections.sort(parts);
      return digest("union " + parts);
    }
    for (int at = 0; at < children.length; at++) {
      LogicalPlan child = (LogicalPlan) children[at];
      if (place(column, child) < 0) continue;
      String found = column(column, child);
      if (!(plan instanceof Join) || child.isStreaming() || !plan.isStreaming()) return found;
      Join join = (Join) plan;
      return digest("looked up " + join.joinType() + text(join.condition(), plan) + found);
    }
    if (plan instanceof CTERelationRef) {
      CTERelationDef query = (CTERelationDef) queries.get(Long.valueOf(((CTERelationRef) plan).cteId()));
      int at = place(column, plan);
      if (query != null && at >= 0) {
        return column((Attribute) array(query.child().output())[at], query.child());
      }
    }
    if (children.length == 0) {
      return digest(names.get(plan) + " " + column.name());
    }
    Object[] expressions = array(plan.expressions());
    for (int at = 0; at < expressions.length && !(plan instanceof Aggregate); at++) {
      if (isRenamed(expressions[at], column)) {
        return column((Attribute) ((Alias) expressions[at]).child(), (LogicalPlan) children[0]);
      }
    }
    return digest(made(column, plan, (LogicalPlan) children[0]));
  }

  static boolean isAliasOf(Object expression, Attribute column) {
    return expression instanceof Alias && ((Alias) expression).exprId().equals(column.exprId());
  }

  static boolean isRenamed(Object expression, Attribute column) {
    return isAliasOf(expression, column) && ((Alias) expression).child() instanceof Attribute;
  }

  String made(Attribute column, LogicalPlan plan, LogicalPlan child) throws Exception {
    if (plan instanceof Expand) {
      int at = place(column, plan);
      Object[] projections = array(((Expand) plan).projections());
      StringBuilder several = new StringBuilder("one of");
      for (int row = 0; row < projections.length; row++) {
        several.append(' ').append(text(array(projections[row])[at], child));
      }
      return several.toString();
    }
    if (plan instanceof Generate) {
      Generate generate = (Generate) plan;
      Object[] output = array(generate.generatorOutput());
      int at = 0;
      while (at < output.length && !((Attribute) output[at]).exprId().equals(column.exprId())) at++;
      return at + " of " + generate.outer() + text(generate.generator(), child);
    }
    Object[] expressions = array(plan.expressions());
    for (int at = 0; at < expressions.length; at++) {
      if (!isAliasOf(expressions[at], column)) continue;
      String found = text(((Alias) expressions[at]).child(), child);
      if (!(plan instanceof Aggregate)) return found;
      Object[] keys = array(((Aggregate) plan).groupingExpressions());
      String[] texts = new String[keys.length];
      for (int key = 0; key < keys.length; key++) texts[key] = text(keys[key], child);
      Arrays.sort(texts);
      return found + " by " + Arrays.asList(texts);
    }
    int at = 0; // among the columns that are made here
    Object[] output = array(plan.output());
    for (int other = 0; other < output.length; other++) {
      if (((NamedExpression) output[other]).exprId().equals(column.exprId())) break;
      if (place((Attribute) output[other], child) < 0) at++;
    }
    return at + " of " + plan.getClass().getName();
  }

  String text(Object value, LogicalPlan plan) throws Exception {
    StringBuilder text = new StringBuilder();
    write(value, plan, text);
    return text.toString();
  }

  void write(Object value, LogicalPlan plan, StringBuilder out) throws Exception {
    if (value == null) {
      out.append("null");
    } else if (value instanceof Alias) {
      write(((Alias) value).child(), plan, out);
    } else if (value instanceof OuterReference) {
      out.append("outer ").append(((OuterReference) value).name());
    } else if (value instanceof NamedLambdaVariable) {
      out.append("variable ").append(variables.indexOf(((NamedLambdaVariable) value).exprId()));
    } else if (value instanceof Attribute) {
      out.append(column((Attribute) value, plan));
    } else if (value instanceof Literal) {
      literal((Literal) value, out);
    } else if (value instanceof LambdaFunction) {
      int before = variables.size();
      Object[] arguments = array(((LambdaFunction) value).arguments());
      for (int at = 0; at < arguments.length; at++) {
        variables.add(((NamedExpression) arguments[at]).exprId());
      }
      out.append("lambda of ").append(arguments.length).append(' ');
      write(((LambdaFunction) value).function(), plan, out);
      while (variables.size() > before) variables.remove(variables.size() - 1);
    } else if (value instanceof CommonExpressionId) {
      out.append("variable ").append(variables.indexOf(value));
    } else if (value instanceof With) {
      With with = (With) value; // as of BETWEEN; each process numbers what is used twice
      int before = variables.size();
      Object[] used = array(with.defs());
      for (int at = 0; at < used.length; at++) variables.add(((CommonExpressionDef) used[at]).id());
      expression(with, plan, out);
      while (variables.size() > before) variables.remove(variables.size() - 1);
    } else if (value instanceof Expression) {
      expression((Expression) value, plan, out);
    } else if (value instanceof LogicalPlan) {
      query((LogicalPlan) value, out);
    } else if (value instanceof scala.Option) {
      scala.Option option = (scala.Option) value;
      if (option.isDefined()) write(option.get(), plan, out);
      else out.append("none");
    } else if (value instanceof DataType || value instanceof scala.collection.Map) {
      out.append('?'); // where they matter words tell of types and options, which may be secret
    } else if (value instanceof scala.collection.Iterable) {
      Object[] each = array(value);
      ArrayList texts = new ArrayList();
      for (int at = 0; at < each.length; at++) texts.add(text(each[at], plan));
      if (value instanceof scala.collection.Set) Collections.sort(texts);
      out.append(texts);
    } else {
      other(value, plan, out);
    }
  }

  void other(Object value, LogicalPlan plan, StringBuilder out) throws Exception {
    String name = value.getClass().getName();
    if (value instanceof Enum) {
      out.append(((Enum) value).name());
    } else if (name.startsWith("java.lang.") || value instanceof scala.Enumeration.Value
        || name.startsWith("org.apache.spark.unsafe.types.")) {
      out.append(name).append(' ').append(value);
    } else if (value instanceof scala.Product && !isPerProcess(name)) {
      out.append(name).append('(');
      scala.collection.Iterator each = ((scala.Product) value).productIterator();
      while (each.hasNext()) {
        write(each.next(), plan, out);
        out.append(',');
      }
      out.append(')');
    } else {
      out.append('?');
    }
  }

  /** Whether objects of a class are others in each process, or tell what changes nothing. */
  static boolean isPerProcess(String name) {
    return name.startsWith("org.apache.spark.api.python.")
        || name.startsWith("org.apache.spark.sql.catalyst.catalog.")
        || name.startsWith("org.apache.spark.sql.catalyst.encoders.")
        || name.startsWith("org.apache.spark.sql.catalyst.trees.")
        || name.equals("org.apache.spark.sql.catalyst.expressions.ExprId");
  }

  static void literal(Literal literal, StringBuilder out) {
    Object value = literal.value();
    out.append(value instanceof Number || value instanceof Boolean ? value : "in the SQL");
  }

  void expression(Expression expression, LogicalPlan plan, StringBuilder out) throws Exception {
    if (expression instanceof GetStructField) {
      GetStructField field = (GetStructField) expression;
      write(field.child(), plan, out);
      out.append('.').append(field.extractFieldName());
      return;
    }
    if (expression instanceof GetArrayStructFields) {
      GetArrayStructFields fields = (GetArrayStructFields) expression;
      write(fields.child(), plan, out);
      out.append("..").append(fields.field().name());
      return;
    }
    boolean hasSeed = expression instanceof ExpressionWithRandomSeed;
    Object seed = hasSeed ? ((ExpressionWithRandomSeed) expression).seedExpression() : null;
    boolean hasZone = expression instanceof TimeZoneAwareExpression;
    Object zone = hasZone ? ((TimeZoneAwareExpression) expression).timeZoneId() : null;
    out.append(expression.getClass().getName()).append('(');
    scala.collection.Iterator each = ((scala.Product) expression).productIterator();
    while (each.hasNext()) {
      Object value = each.next();
      if (hasSeed && (value == seed || isNumber(value))) continue;
      if (hasZone && value == zone) continue; // told in words where it is used
      write(value, plan, out);
      out.append(',');
    }
    out.append(')');
  }

  static boolean isNumber(Object value) {
    if (!(value instanceof scala.Option)) return false;
    scala.Option option = (scala.Option) value;
    return option.isEmpty() || option.get() instanceof Long;
  }

  /** A query inside an expression. */
  void query(LogicalPlan plan, StringBuilder out) throws Exception {
    Object[] children = array(plan.children());
    if (plan instanceof SubqueryAlias) {
      query((LogicalPlan) children[0], out);
      return;
    }
    out.append(plan.getClass().getName()).append('(');
    if (children.length == 0) {
      Object[] output = array(plan.output());
      for (int at = 0; at < output.length; at++) {
        out.append(((Attribute) output[at]).name()).append(',');
      }
    } else {
      Object[] expressions = array(plan.expressions());
      for (int at = 0; at < expressions.length; at++) {
        write(expressions[at], plan, out);
        out.append(',');
      }
      for (int at = 0; at < children.length; at++) query((LogicalPlan) children[at], out);
    }
    out.append(')');
  }
}
