import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.CellUtil;
import org.apache.hadoop.hbase.KeyValue;
import org.apache.hadoop.hbase.io.compress.Compression;
import org.apache.hadoop.hbase.io.compress.aircompressor.Lz4Codec;
import org.apache.hadoop.hbase.io.compress.aircompressor.SnappyCodec;
import org.apache.hadoop.hbase.io.compress.aircompressor.ZstdCodec;
import org.apache.hadoop.hbase.io.hfile.CacheConfig;
import org.apache.hadoop.hbase.io.hfile.HFile;
import org.apache.hadoop.hbase.io.hfile.HFileBlock;
import org.apache.hadoop.hbase.io.hfile.HFileBlockIndex;
import org.apache.hadoop.hbase.io.hfile.HFileContextBuilder;
import org.apache.hadoop.hbase.io.hfile.HFileScanner;

/** HBase: those for whom the format was made. No block cache, files without checksums beside. */
public class HBase extends Peer {
  static final byte[] NOTHING = new byte[0];

  private final Configuration conf = new Configuration();
  private final FileSystem files;

  HBase() throws IOException {
    conf.set(Compression.SNAPPY_CODEC_CLASS_KEY, SnappyCodec.class.getName());
    conf.set(Compression.LZ4_CODEC_CLASS_KEY, Lz4Codec.class.getName());
    conf.set(Compression.ZSTD_CODEC_CLASS_KEY, ZstdCodec.class.getName());
    for (String name : new String[] {"SNAPPY", "LZ4", "ZSTD"}) {
      Compression.Algorithm.valueOf(name).reload(conf);
    }
    files = FileSystem.getLocal(conf).getRawFileSystem();
  }

  public static void main(String[] args) throws Exception {
    serve(new HBase());
  }

  @Override
  Reader open(String file) throws Exception {
    return new Opened(HFile.createReader(files, new Path(file), CacheConfig.DISABLED, true, conf));
  }

  @Override
  Writer create(String file, String codec, int blockBytes, int indexBytes) throws Exception {
    Configuration own = new Configuration(conf);
    own.setInt(HFileBlockIndex.MAX_CHUNK_SIZE_KEY, indexBytes);
    HFile.Writer writer = HFile.getWriterFactory(own, CacheConfig.DISABLED)
        .withPath(files, new Path(file))
        .withFileContext(new HFileContextBuilder()
            .withBlockSize(blockBytes)
            .withCompression(Compression.Algorithm.valueOf(codec))
            .build())
        .create();
    return new Writer() {
      @Override
      public void add(Object entry) throws Exception {
        writer.append((Cell) entry);
      }

      @Override
      public void close() throws IOException {
        writer.close();
      }
    };
  }

  @Override
  Object entry(byte[] key, byte[] value) {
    return cell(key, value);
  }

  static KeyValue cell(byte[] row, byte[] value) {
    return new KeyValue(row, NOTHING, NOTHING, Long.MAX_VALUE, KeyValue.Type.Put, value);
  }

  final class Opened implements Reader {
    private final HFile.Reader reader;
    private final HFileScanner scanner;

    Opened(HFile.Reader reader) {
      this.reader = reader;
      this.scanner = reader.getScanner(conf, false, true);
    }

    @Override
    public long count() {
      return reader.getEntries();
    }

    @Override
    public byte[] meta(String name) throws Exception {
      HFileBlock block = reader.getMetaBlock(name, false);
      return block == null ? null : block.getBufferWithoutHeader().toBytes();
    }

    @Override
    public boolean first() throws Exception {
      return scanner.seekTo();
    }

    @Override
    public boolean next() throws Exception {
      return scanner.next();
    }

    @Override
    public boolean find(byte[] key) throws Exception {
      return reader.getEntries() > 0 && scanner.reseekTo(cell(key, NOTHING)) == 0;
    }

    @Override
    public int size() {
      Cell cell = scanner.getCell();
      return cell.getRowLength() + cell.getValueLength();
    }

    @Override
    public void addValueTo(CRC32 checksum) {
      checksum.update(scanner.getValue());
    }

    @Override
    public byte[] key() {
      return CellUtil.cloneRow(scanner.getCell());
    }

    @Override
    public byte[] value() {
      return CellUtil.cloneValue(scanner.getCell());
    }

    @Override
    public void close() throws IOException {
      scanner.close();
      reader.close();
    }
  }
}
