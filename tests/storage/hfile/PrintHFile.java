import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.apache.hudi.io.ByteArraySeekableDataInputStream;
import org.apache.hudi.io.ByteBufferBackedInputStream;
import org.apache.hudi.io.hfile.HFileReader;
import org.apache.hudi.io.hfile.HFileReaderImpl;
import org.apache.hudi.io.hfile.Key;
import org.apache.hudi.io.hfile.KeyValue;
import org.apache.hudi.io.hfile.UTF8StringKey;

/**
 * Prints, with hudi-io's own reader, what HFiles hold: "count n", "meta base64|none" for the
 * META block "body", "entry key value" for each entry of a scan, and "found value|none" for
 * each key of a second file (base64, a line each, ascending). Arguments: HFILE KEYS HFILE KEYS ...
 */
public class PrintHFile {
  static final Base64.Encoder BASE64 = Base64.getEncoder();

  public static void main(String[] args) throws Exception {
    StringBuilder out = new StringBuilder();
    for (int at = 0; at < args.length; at += 2) {
      print(args[at], args[at + 1], out);
    }
    System.out.print(out);
  }

  static void print(String file, String keys, StringBuilder out) throws Exception {
    try (HFileReader reader = open(file)) {
      out.append("count ").append(reader.getNumKeyValueEntries()).append('\n');
      out.append("meta ").append(meta(reader)).append('\n');
      for (boolean more = reader.seekTo(); more; more = reader.next()) {
        KeyValue entry = reader.getKeyValue().get();
        out.append("entry ").append(key(entry)).append(' ').append(value(entry)).append('\n');
      }
    }
    try (HFileReader reader = open(file)) {
      boolean any = reader.seekTo(); // lookups go forward from here
      for (String line : Files.readAllLines(Path.of(keys))) {
        Key wanted = new UTF8StringKey(Base64.getDecoder().decode(line));
        boolean found = any && reader.seekTo(wanted) == HFileReader.SEEK_TO_FOUND;
        out.append("found ").append(found ? value(reader.getKeyValue().get()) : "none");
        out.append('\n');
      }
    }
  }

  static HFileReader open(String path) throws Exception {
    byte[] body = Files.readAllBytes(Path.of(path));
    HFileReader reader = new HFileReaderImpl(
        new ByteArraySeekableDataInputStream(new ByteBufferBackedInputStream(body)), body.length);
    reader.initializeMetadata();
    return reader;
  }

  static String meta(HFileReader reader) throws Exception {
    return reader.getMetaBlock("body").map(PrintHFile::bytes).orElse("none");
  }

  static String bytes(ByteBuffer buffer) {
    byte[] copy = new byte[buffer.remaining()];
    buffer.get(copy);
    return "=" + BASE64.encodeToString(copy);
  }

  static String key(KeyValue entry) {
    return slice(entry, entry.getKeyContentOffset(), entry.getKeyContentLength());
  }

  static String value(KeyValue entry) {
    return slice(entry, entry.getValueOffset(), entry.getValueLength());
  }

  static String slice(KeyValue entry, int offset, int length) {
    byte[] copy = new byte[length];
    System.arraycopy(entry.getBytes(), offset, copy, 0, length);
    return "=" + BASE64.encodeToString(copy);
  }
}
