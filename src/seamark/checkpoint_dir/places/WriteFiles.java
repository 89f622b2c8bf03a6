package seamark.hadoop;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Collections;
import java.util.Iterator;
import java.util.UUID;

import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Writes files of one folder from frames of Python: "SHA-256 size name", then the bytes in pieces.
 *
 * A file appears under its name when all its bytes are there and are right. Until then it is a
 * draft in a folder that the driver removes, whatever becomes of the task. A task that is run twice
 * finds the file of the other one and leaves it alone. Compiled by Janino, which knows no type
 * parameters.
 */
public class WriteFiles implements FlatMapFunction {
  private final SerializableConfiguration settings;
  private final String root;
  private final String drafts;

  public WriteFiles(SerializableConfiguration settings, String root, String drafts) {
    this.settings = settings;
    this.root = root;
    this.drafts = drafts;
  }

  public Iterator call(Object given) throws Exception {
    Iterator frames = (Iterator) given;
    FileSystem files = new Path(root).getFileSystem(settings.value());
    long written = 0;
    while (frames.hasNext()) {
      String head = new String((byte[]) frames.next(), StandardCharsets.UTF_8);
      String[] words = head.split(" ", 3);
      long size = Long.parseLong(words[1]);
      Path draft = new Path(root + "/" + drafts + "/." + UUID.randomUUID());
      String sha256 = write(files, draft, size, frames);
      if (!sha256.equals(words[0])) {
        throw new IOException(words[2] + ": SHA-256 differs");
      }
      place(files, draft, new Path(root + "/" + words[2]), size);
      written += 1;
    }
    return Collections.singletonList(Long.valueOf(written)).iterator();
  }

  private String write(FileSystem files, Path draft, long size, Iterator frames) throws Exception {
    MessageDigest digest = MessageDigest.getInstance("SHA-256");
    FSDataOutputStream out = files.create(draft, false);
    try {
      for (long left = size; left > 0; ) {
        if (!frames.hasNext()) {
          throw new IOException(left + " bytes are missing at the end of " + draft);
        }
        byte[] piece = (byte[]) frames.next();
        if (piece.length > left) {
          throw new IOException(draft + " got more than " + size + " bytes");
        }
        out.write(piece, 0, piece.length);
        digest.update(piece, 0, piece.length);
        left -= piece.length;
      }
    } finally {
      out.close();
    }
    StringBuilder hex = new StringBuilder();
    byte[] bytes = digest.digest();
    for (int i = 0; i < bytes.length; i++) {
      hex.append(Character.forDigit((bytes[i] >> 4) & 15, 16));
      hex.append(Character.forDigit(bytes[i] & 15, 16));
    }
    return hex.toString();
  }

  private void place(FileSystem files, Path draft, Path target, long size) throws IOException {
    files.mkdirs(target.getParent());
    if (files.rename(draft, target)) {
      return;
    }
    FileStatus there = files.getFileStatus(target);
    if (there.isDirectory() || there.getLen() != size) {
      throw new IOException(target + " is in the way of another file");
    }
  }
}
