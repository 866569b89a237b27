import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.zip.CRC32;
import org.apache.hudi.common.util.Option;
import org.apache.hudi.io.SeekableDataInputStream;
import org.apache.hudi.io.compress.CompressionCodec;
import org.apache.hudi.io.hfile.HFileContext;
import org.apache.hudi.io.hfile.HFileReader;
import org.apache.hudi.io.hfile.HFileReaderImpl;
import org.apache.hudi.io.hfile.HFileWriter;
import org.apache.hudi.io.hfile.HFileWriterImpl;
import org.apache.hudi.io.hfile.KeyValue;
import org.apache.hudi.io.hfile.UTF8StringKey;

/** hudi-io: Hudi's own reader and writer of HFiles. It writes keys that are texts. */
public class HudiIo extends Peer {
  public static void main(String[] args) throws Exception {
    serve(new HudiIo());
  }

  @Override
  Reader open(String file) throws Exception {
    RandomAccessFile source = new RandomAccessFile(file, "r");
    HFileReader reader = new HFileReaderImpl(new Source(source), source.length());
    reader.initializeMetadata();
    return new Opened(reader);
  }

  @Override
  Writer create(String file, String codec, int blockBytes, int indexBytes) throws Exception {
    HFileContext context = HFileContext.builder()
        .blockSize(blockBytes)
        .compressionCodec(codec.equals("GZ") ? CompressionCodec.GZIP : CompressionCodec.NONE)
        .build();
    OutputStream sink = new BufferedOutputStream(new FileOutputStream(file), 1 << 16);
    HFileWriter writer = new HFileWriterImpl(context, sink);
    return new Writer() {
      @Override
      public void add(Object entry) throws Exception {
        Map.Entry<?, ?> pair = (Map.Entry<?, ?>) entry;
        writer.append((String) pair.getKey(), (byte[]) pair.getValue());
      }

      @Override
      public void close() throws IOException {
        writer.close();
        sink.close();
      }
    };
  }

  @Override
  Object entry(byte[] key, byte[] value) {
    return Map.entry(new String(key, StandardCharsets.UTF_8), value);
  }

  /** A file as hudi-io wants it: it seeks to a block and reads the block whole. */
  static final class Source extends SeekableDataInputStream {
    private final RandomAccessFile file;

    Source(RandomAccessFile file) {
      super(new InputStream() {
        @Override
        public int read() throws IOException {
          return file.read();
        }

        @Override
        public int read(byte[] into, int offset, int length) throws IOException {
          return file.read(into, offset, length);
        }

        @Override
        public void close() throws IOException {
          file.close();
        }
      });
      this.file = file;
    }

    @Override
    public long getPos() throws IOException {
      return file.getFilePointer();
    }

    @Override
    public void seek(long offset) throws IOException {
      file.seek(offset);
    }
  }

  static final class Opened implements Reader {
    private final HFileReader reader;
    private boolean seeks;
    private boolean any;

    Opened(HFileReader reader) {
      this.reader = reader;
    }

    @Override
    public long count() {
      return reader.getNumKeyValueEntries();
    }

    @Override
    public byte[] meta(String name) throws Exception {
      Option<ByteBuffer> found = reader.getMetaBlock(name);
      if (!found.isPresent()) {
        return null;
      }
      byte[] copy = new byte[found.get().remaining()];
      found.get().get(copy);
      return copy;
    }

    @Override
    public boolean first() throws Exception {
      return reader.seekTo();
    }

    @Override
    public boolean next() throws Exception {
      return reader.next();
    }

    @Override
    public boolean find(byte[] key) throws Exception {
      if (!seeks) { // lookups go forward from the first entry
        any = reader.seekTo();
        seeks = true;
      }
      return any && reader.seekTo(new UTF8StringKey(key)) == HFileReader.SEEK_TO_FOUND;
    }

    @Override
    public int size() throws Exception {
      KeyValue entry = reader.getKeyValue().get();
      return entry.getKeyContentLength() + entry.getValueLength();
    }

    @Override
    public void addValueTo(CRC32 checksum) throws Exception {
      KeyValue entry = reader.getKeyValue().get();
      checksum.update(entry.getBytes(), entry.getValueOffset(), entry.getValueLength());
    }

    @Override
    public byte[] key() throws Exception {
      KeyValue entry = reader.getKeyValue().get();
      return slice(entry, entry.getKeyContentOffset(), entry.getKeyContentLength());
    }

    @Override
    public byte[] value() throws Exception {
      KeyValue entry = reader.getKeyValue().get();
      return slice(entry, entry.getValueOffset(), entry.getValueLength());
    }

    @Override
    public void close() throws IOException {
      reader.close();
    }

    private static byte[] slice(KeyValue entry, int offset, int length) {
      return Arrays.copyOfRange(entry.getBytes(), offset, offset + length);
    }
  }
}
