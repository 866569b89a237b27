import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Base64;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileBlock;
import org.apache.hadoop.hbase.io.hfile.HFileScanner;

/** As PrintHFile, with HBase's own reader. */
public class HBasePrintHFile {
  static final Base64.Encoder BASE64 = Base64.getEncoder();
  static final byte[] NOTHING = new byte[0];

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    FileSystem files = FileSystem.getLocal(conf);
    StringBuilder out = new StringBuilder();
    for (int at = 0; at < args.length; at += 2) {
      Path path = new Path(args[at]);
      CacheConfig cache = CacheConfig.DISABLED;
      try (HFile.Reader reader = HFile.createReader(files, path, cache, true, conf)) {
        print(reader, reader.getScanner(conf, false, true), args[at + 1], out);
      }
    }
    System.out.print(out);
  }

  static void print(HFile.Reader reader, HFileScanner scanner, String keys, StringBuilder out)
      throws Exception {
    out.append("count ").append(reader.getEntries()).append('\n');
    out.append("meta ").append(meta(reader)).append('\n');
    for (boolean more = scanner.seekTo(); more; more = scanner.next()) {
      Cell cell = scanner.getCell();
      out.append("entry ").append(text(CellUtil.cloneRow(cell))).append(' ');
      out.append(text(CellUtil.cloneValue(cell))).append('\n');
    }
    for (String line : Files.readAllLines(Paths.get(keys))) {
      byte[] row = Base64.getDecoder().decode(line);
      Cell wanted = new KeyValue(
          row, NOTHING, NOTHING, Long.MAX_VALUE, KeyValue.Type.Put, NOTHING);
      boolean found = reader.getEntries() > 0 && scanner.seekTo(wanted) == 0;
      out.append("found ").append(found ? text(CellUtil.cloneValue(scanner.getCell())) : "none");
      out.append('\n');
    }
  }

  static String meta(HFile.Reader reader) throws Exception {
    HFileBlock block = reader.getMetaBlock("body", false);
    return block == null ? "none" : text(block.getBufferWithoutHeader().toBytes());
  }

  static String text(byte[] bytes) {
    return "=" + BASE64.encodeToString(bytes);
  }
}
