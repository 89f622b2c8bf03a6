package seamark.hadoop;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Iterator;
import java.util.NoSuchElementException;

import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.TaskCompletionListener;

/**
 * Files of one folder as frames for Python: the name of a file, its bytes in pieces, an empty frame.
 *
 * At most two pieces are held at a time. Compiled by Janino, which knows no type parameters.
 */
public class ReadFiles implements FlatMapFunction {
  private final SerializableConfiguration settings;
  private final String root;
  private final int piece;

  public ReadFiles(SerializableConfiguration settings, String root, Integer piece) {
    this.settings = settings;
    this.root = root;
    this.piece = piece.intValue();
  }

  public Iterator call(Object names) {
    Frames frames = new Frames(this, (Iterator) names);
    TaskContext.get().addTaskCompletionListener(frames);
    return frames;
  }

  static class Frames implements Iterator, TaskCompletionListener {
    private final ReadFiles from;
    private final Iterator names;
    private InputStream open;

    Frames(ReadFiles from, Iterator names) {
      this.from = from;
      this.names = names;
    }

    public boolean hasNext() {
      return open != null || names.hasNext();
    }

    public Object next() {
      if (!hasNext()) {
        throw new NoSuchElementException();
      }
      try {
        return open == null ? begin((String) names.next()) : read();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    private byte[] begin(String name) throws IOException {
      Path path = new Path(from.root + "/" + name);
      open = path.getFileSystem(from.settings.value()).open(path);
      return name.getBytes(StandardCharsets.UTF_8);
    }

    private byte[] read() throws IOException {
      byte[] bytes = new byte[from.piece];
      int length = open.readNBytes(bytes, 0, bytes.length);
      if (length == 0) {
        close();
      }
      return length == bytes.length ? bytes : Arrays.copyOf(bytes, length);
    }

    private void close() throws IOException {
      InputStream was = open;
      open = null;
      was.close();
    }

    public void onTaskCompletion(TaskContext context) {
      if (open == null) {
        return;
      }
      try {
        close();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }
}
