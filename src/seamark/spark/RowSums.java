package seamark.spark;

import java.io.Serializable;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.function.LongPredicate;

import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.LongAccumulator;
import scala.collection.immutable.Nil$;
import scala.collection.immutable.Seq;

/**
 * Adds up two hashes of the numbers of the rows that pass a filter, which lets all of them pass.
 *
 * The filter is part of the code that Spark generates for a stage. That code names only a class of
 * the JDK, and what comes back from a task is an accumulator of Spark's own: no class loader but
 * that of the tasks has to know this class. Compiled by Janino, which knows no type parameters.
 */
public class RowSums implements LongPredicate, Serializable {
  private final LongAccumulator first;
  private final LongAccumulator second;
  private final CollectionAccumulator readers;
  private final Long salt;
  private final long seed;
  private transient boolean begun;
  private transient SparkContext context;

  public RowSums(SparkContext context, Long salt) {
    this.context = context;
    this.salt = salt;
    this.seed = XXH64.hashLong(salt.longValue(), 42L); // as xxhash64(salt, number) has it in SQL
    this.first = context.longAccumulator();
    this.second = context.longAccumulator();
    this.readers = context.collectionAccumulator();
  }

  /** Sums of their own for the next rows. */
  public RowSums next() {
    return new RowSums(context, salt);
  }

  /** A condition that is always true. Where it is evaluated, the row is added. */
  public Column condition(Column number) {
    Expression sums = new Literal(this, new ObjectType(LongPredicate.class));
    Seq nothing = (Seq) Nil$.MODULE$;
    Seq arguments = (Seq) nothing.$colon$plus(ExpressionUtils.expression(number));
    // not deterministic: it must be evaluated once for each row, in its place
    return ExpressionUtils.column(
        new Invoke(
            sums, "test", DataTypes.BooleanType, arguments, nothing, false, false, false));
  }

  public boolean test(long number) {
    if (!begun) {
      begin();
    }
    first.add(XXH64.hashLong(number, 42L));
    second.add(XXH64.hashLong(number, seed));
    return true;
  }

  /** Each task has a copy of its own; it notes which stage and partition it reads for. */
  private void begin() {
    TaskContext task = TaskContext.get();
    begun = task != null; // rows that lie in the plan itself may be read by the driver, and often
    long reader = task == null ? -1L : ((long) task.stageId() << 32) | task.partitionId();
    readers.add(Long.valueOf(reader));
  }

  /** Five numbers: stages that have read rows, partitions read again, rows, the two sums. */
  public String result() {
    Set stages = new HashSet();
    Set distinct = new HashSet();
    List all = readers.value();
    for (Iterator each = all.iterator(); each.hasNext(); ) {
      Long reader = (Long) each.next();
      distinct.add(reader);
      stages.add(Long.valueOf(reader.longValue() >> 32));
    }
    int again = all.size() - distinct.size();
    return stages.size() + " " + again + " " + first.count() + " " + first.sum() + " "
        + second.sum();
  }

  public String toString() {
    return "digest";
  }
}
