package seamark.spark;

import java.lang.reflect.Method;
import java.util.UUID;

import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Writes the state of one partition again, with each value as a projection makes it of the old one.
 *
 * Reading, encoding and writing are Spark's own. The new state is version 1 of a store that was
 * empty. Compiled by Janino, which knows no type parameters.
 */
public class RewriteValues implements Function {
  private final SerializableConfiguration settings;
  private final StateStoreConf reading;
  private final StateStoreConf writing;
  private final String from;
  private final String to;
  private final int operator;
  private final int number;
  private final long version;
  private final String[] ids;
  private final StructType keys;
  private final StructType before;
  private final StructType after;
  private final scala.collection.immutable.Seq columns;

  public RewriteValues(
      SerializableConfiguration settings, StateStoreConf reading, StateStoreConf writing,
      String from, String to, Integer operator, Integer number, Integer version, String[] ids,
      StructType keys, StructType before, StructType after,
      scala.collection.immutable.Seq columns) {
    this.settings = settings;
    this.reading = reading;
    this.writing = writing;
    this.from = from;
    this.to = to;
    this.operator = operator.intValue();
    this.number = number.intValue();
    this.version = version.longValue();
    this.ids = ids;
    this.keys = keys;
    this.before = before;
    this.after = after;
    this.columns = columns;
  }

  /** The number of a partition; "partition rows id", without an id in checkpoint format 1. */
  public Object call(Object given) throws Exception {
    int partition = ((Integer) given).intValue();
    String id = ids.length == 0 ? null : ids[partition];
    StateStoreProvider source = open(reading, from, operator, partition, before);
    try {
      StateStoreProvider target = open(writing, to, number, partition, after);
      try {
        return partition + " " + rewrite(source.getReadStore(version, option(id)), target);
      } finally {
        target.close();
      }
    } finally {
      source.close();
    }
  }

  private String rewrite(ReadStateStore from, StateStoreProvider provider) throws Exception {
    StateStore to = (StateStore) store(provider, 0L);
    UnsafeProjection projection = UnsafeProjection.create(columns);
    long rows = 0;
    try {
      scala.collection.Iterator pairs = from.iterator("default");
      while (pairs.hasNext()) {
        UnsafeRowPair pair = (UnsafeRowPair) pairs.next();
        to.put(pair.key(), projection.apply(pair.value()), "default");
        rows += 1;
      }
      to.commit();
    } finally {
      from.abort();
      if (!to.hasCommitted()) to.abort();
    }
    scala.Option id = to.getStateStoreCheckpointInfo().stateStoreCkptId();
    return id.isDefined() ? rows + " " + id.get() : String.valueOf(rows);
  }

  private StateStoreProvider open(
      StateStoreConf conf, String root, int operator, int partition, StructType values) {
    StateStoreId id = new StateStoreId(root, (long) operator, partition, "default");
    return org.apache.spark.sql.execution.streaming.state.StateStoreProvider$.MODULE$.createAndInit(
        new StateStoreProviderId(id, UUID.randomUUID()), keys, values,
        new NoPrefixKeyStateEncoderSpec(keys), false, conf,
        new Configuration(settings.value()), false, option(null));
  }

  /** The store to write to; what else Spark asks for differs between its versions. */
  private static Object store(StateStoreProvider provider, long version) throws Exception {
    Method[] methods = provider.getClass().getMethods();
    for (int at = 0; at < methods.length; at++) {
      Class[] types = methods[at].getParameterTypes();
      if (methods[at].getName().equals("getStore") && types.length >= 2) {
        Object[] arguments = new Object[types.length];
        arguments[0] = Long.valueOf(version);
        arguments[1] = option(null);
        for (int rest = 2; rest < types.length; rest++) arguments[rest] = Boolean.FALSE;
        return methods[at].invoke(provider, arguments);
      }
    }
    throw new NoSuchMethodException("getStore");
  }

  private static scala.Option option(Object value) {
    return scala.Option.apply(value);
  }
}
