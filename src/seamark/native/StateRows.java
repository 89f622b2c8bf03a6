package seamark.state;

import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Collections;
import java.util.Iterator;
import java.util.UUID;

import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.io.CompressionCodec;
import org.apache.spark.io.CompressionCodec$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Counts the rows of each partition and adds up their hashes; writes them as a snapshot if asked.
 *
 * A row to be written has two columns, the key and the value of a state store. The snapshot is one
 * of Spark's HDFS-backed provider: each key and value behind its length, -1 at the end. It appears
 * under its name when it is whole. Compiled by Janino, which knows no type parameters.
 */
public class StateRows implements Function2 {
  private final SerializableConfiguration settings;
  private final String before;
  private final String after;
  private final String codec;
  private final int keyFields;
  private final int valueFields;

  /** The snapshot of a partition is at before + its number + after; nowhere if after is empty. */
  public StateRows(
      SerializableConfiguration settings,
      String before,
      String after,
      String codec,
      Integer keyFields,
      Integer valueFields) {
    this.settings = settings;
    this.before = before;
    this.after = after;
    this.codec = codec;
    this.keyFields = keyFields.intValue();
    this.valueFields = valueFields.intValue();
  }

  public Object call(Object partition, Object given) throws Exception {
    Iterator rows = (Iterator) given;
    if (after.isEmpty()) {
      return digest(rows, null);
    }
    Path target = new Path(before + partition + after);
    String name = "." + target.getName() + "." + UUID.randomUUID() + ".tmp";
    Path draft = new Path(target.getParent(), name);
    FileSystem files = target.getFileSystem(settings.value());
    files.mkdirs(target.getParent());
    boolean written = false;
    try {
      CompressionCodec packed = CompressionCodec$.MODULE$.createCodec(new SparkConf(false), codec);
      DataOutputStream out =
          new DataOutputStream(packed.compressedOutputStream(files.create(draft, true)));
      Object found;
      try {
        found = digest(rows, out);
        out.writeInt(-1);
      } finally {
        out.close();
      }
      // what an abandoned history has left there would be loaded without a question
      files.delete(target, false);
      if (!files.rename(draft, target)) {
        throw new IOException(target + " cannot be written");
      }
      written = true;
      return found;
    } finally {
      if (!written) {
        files.delete(draft, false);
      }
    }
  }

  private Object digest(Iterator rows, DataOutputStream out) throws IOException {
    long count = 0;
    long sum = 0;
    while (rows.hasNext()) {
      UnsafeRow row = (UnsafeRow) rows.next();
      count += 1;
      sum += XXH64.hashUnsafeBytes(
          row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes(), 42L);
      if (out != null) {
        put(out, row.getStruct(0, keyFields));
        put(out, row.getStruct(1, valueFields));
      }
    }
    return Collections.singletonList(count + " " + sum).iterator();
  }

  private static void put(DataOutputStream out, UnsafeRow row) throws IOException {
    byte[] bytes = row.getBytes();
    out.writeInt(bytes.length);
    out.write(bytes, 0, bytes.length);
  }
}
