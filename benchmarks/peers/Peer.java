import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.zip.CRC32;

/**
 * A library of HFiles behind a pipe. It reads commands, one a line, words between tabs, and
 * answers each with one line, "ok MILLISECONDS COUNT CHECKSUM" or "error WHAT":
 *
 *   write FILE ENTRIES CODEC BLOCK_BYTES INDEX_BYTES   checksum: bytes of the file
 *   get FILE KEYS      all keys, ascending, with one reader; checksum: CRC32 of what was found
 *   open FILE KEYS     each key with a reader of its own
 *   next FILE KEYS     the last key, with a reader that has looked the others up
 *   scan FILE          checksum: bytes of keys and values
 *   print FILE KEYS OUT   the file as text, in OUT; keys are looked up with one reader
 *
 * KEYS are a file of {u32 size, key}, ENTRIES of {u32 size, key, u32 size, value}, big-endian.
 * Only the library's work is timed: opening its readers is, loading these files is not.
 */
abstract class Peer {
  /** An HFile that is open for reading; `first`, `next` and `find` put it on an entry. */
  interface Reader extends Closeable {
    long count() throws Exception;

    byte[] meta(String name) throws Exception;

    boolean first() throws Exception;

    boolean next() throws Exception;

    boolean find(byte[] key) throws Exception;

    int size() throws Exception;

    void addValueTo(CRC32 checksum) throws Exception;

    byte[] key() throws Exception;

    byte[] value() throws Exception;
  }

  /** An HFile that is being written. */
  interface Writer extends Closeable {
    void add(Object entry) throws Exception;
  }

  abstract Reader open(String file) throws Exception;

  abstract Writer create(String file, String codec, int blockBytes, int indexBytes)
      throws Exception;

  /** An entry in the form that the library's callers have it in. */
  abstract Object entry(byte[] key, byte[] value);

  private String loadedName = "";
  private List<Object> loaded = List.of();

  static void serve(Peer peer) throws Exception {
    PrintStream answers = System.out;
    System.setOut(System.err); // for whatever a library prints
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    for (String line; (line = commands.readLine()) != null; ) {
      String answer;
      try {
        answer = peer.answer(line.split("\t", -1));
      } catch (Throwable error) {
        error.printStackTrace();
        answer = "error " + error.toString().replace('\n', ' ');
      }
      answers.println(answer);
      answers.flush();
    }
  }

  private String answer(String[] words) throws Exception {
    switch (words[0]) {
      case "write":
        int indexBytes = Integer.parseInt(words[5]);
        return write(words[1], words[2], words[3], Integer.parseInt(words[4]), indexBytes);
      case "get":
        return get(words[1], read(words[2], 1));
      case "open":
        return eachAnew(words[1], read(words[2], 1));
      case "next":
        return last(words[1], read(words[2], 1));
      case "scan":
        return scan(words[1]);
      case "print":
        return print(words[1], read(words[2], 1), words[3]);
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }

  private String write(String file, String entries, String codec, int blockBytes, int indexBytes)
      throws Exception {
    load(entries);
    long began = System.nanoTime();
    try (Writer writer = create(file, codec, blockBytes, indexBytes)) {
      for (Object entry : loaded) {
        writer.add(entry);
      }
    }
    return told(began, loaded.size(), Files.size(Path.of(file)));
  }

  private String get(String file, List<byte[]> keys) throws Exception {
    CRC32 checksum = new CRC32();
    long began = System.nanoTime();
    long found = 0;
    try (Reader reader = open(file)) {
      for (byte[] key : keys) {
        found += look(reader, key, checksum);
      }
    }
    return told(began, found, checksum.getValue());
  }

  private String eachAnew(String file, List<byte[]> keys) throws Exception {
    CRC32 checksum = new CRC32();
    long began = System.nanoTime();
    long found = 0;
    for (byte[] key : keys) {
      try (Reader reader = open(file)) {
        found += look(reader, key, checksum);
      }
    }
    return told(began, found, checksum.getValue());
  }

  private String last(String file, List<byte[]> keys) throws Exception {
    CRC32 checksum = new CRC32();
    try (Reader reader = open(file)) {
      for (byte[] key : keys.subList(0, keys.size() - 1)) {
        look(reader, key, new CRC32());
      }
      long began = System.nanoTime();
      long found = look(reader, keys.get(keys.size() - 1), checksum);
      return told(began, found, checksum.getValue());
    }
  }

  private String scan(String file) throws Exception {
    long began = System.nanoTime();
    long count = 0;
    long bytes = 0;
    try (Reader reader = open(file)) {
      for (boolean more = reader.first(); more; more = reader.next()) {
        count++;
        bytes += reader.size();
      }
    }
    return told(began, count, bytes);
  }

  private static int look(Reader reader, byte[] key, CRC32 checksum) throws Exception {
    if (!reader.find(key)) {
      return 0;
    }
    reader.addValueTo(checksum);
    return 1;
  }

  private static String told(long began, long count, long checksum) {
    double milliseconds = (System.nanoTime() - began) / 1e6;
    return "ok " + milliseconds + " " + count + " " + checksum;
  }

  private String print(String file, List<byte[]> keys, String out) throws Exception {
    long count;
    try (PrintWriter to = new PrintWriter(out, "UTF-8")) {
      try (Reader reader = open(file)) {
        count = reader.count();
        byte[] meta = reader.meta("body");
        to.println(count);
        to.println("meta " + (meta == null ? "none" : text(meta)));
        for (boolean more = reader.first(); more; more = reader.next()) {
          to.println("entry " + text(reader.key()) + " " + text(reader.value()));
        }
      }
      try (Reader reader = open(file)) {
        for (byte[] key : keys) {
          to.println("found " + (reader.find(key) ? text(reader.value()) : "none"));
        }
      }
    }
    return told(System.nanoTime(), count, 0);
  }

  private static String text(byte[] bytes) {
    return "=" + Base64.getEncoder().encodeToString(bytes);
  }

  private void load(String entries) throws Exception {
    String name = entries + " " + Files.getLastModifiedTime(Path.of(entries));
    if (loadedName.equals(name)) {
      return;
    }
    loaded = List.of();
    List<byte[]> parts = read(entries, 2);
    List<Object> made = new ArrayList<>(parts.size() / 2);
    for (int at = 0; at < parts.size(); at += 2) {
      made.add(entry(parts.get(at), parts.get(at + 1)));
    }
    loaded = made;
    loadedName = name;
  }

  private static List<byte[]> read(String file, int each) throws Exception {
    List<byte[]> parts = new ArrayList<>();
    try (DataInputStream in = new DataInputStream(
        new BufferedInputStream(Files.newInputStream(Path.of(file)), 1 << 20))) {
      while (true) {
        byte[] part = new byte[in.readInt()];
        in.readFully(part);
        parts.add(part);
      }
    } catch (EOFException end) {
      if (parts.size() % each != 0) {
        throw end;
      }
      return parts;
    }
  }
}
