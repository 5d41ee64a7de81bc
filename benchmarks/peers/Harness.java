package peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * The common part of the harnesses: the events, the query, and a loop that answers each line of
 * standard input with one run.
 *
 * <p>Arguments: FILE STRATEGY STEPS WINDOW_MS KEYED. A line of FILE is `node,type,time_ms,key`;
 * STRATEGY is `any` or `next`; STEPS are types of events, joined by commas; KEYED is `-`,
 * `partition` (by key) or `equal` (the last step's `other` is the first step's key). A run prints
 * `MATCHES DIGEST WALL_NS CPU_NS`: the CPU time is that of the whole process, and the digest sums
 * up the events of the matches if the line is `inspect`; otherwise matches are only counted.
 */
public abstract class Harness {
    /** An event; its place in the file is its identity. */
    public static class Event {
        public String node = "";
        public String type = "";
        public long time;
        public int key;
        public int other;
        public long place;

        public String getNode() { return node; }
        public String getType() { return type; }
        public long getTime() { return time; }
        public int getKey() { return key; }
        public int getOther() { return other; }
        public long getPlace() { return place; }
    }

    protected static Event[] events = {};
    protected static boolean any;
    protected static String[] steps = {};
    protected static long windowMs;
    protected static String keyed = "-";
    /** The span of the events plus twice the window: the shift of times between two runs. */
    private static long spanMs;
    /** Whether the digest of the matches' events is computed. */
    protected static boolean inspecting;

    protected static long matches;
    protected static long digest;
    protected static long wallNs;
    protected static long cpuNs;

    /** Offer all events, times moved by `base`; call `begun`, count matches, call `ended`. */
    protected abstract void run(long base) throws Exception;

    /** Add the places of a match's events to the digest. */
    protected static void inspect(long... places) {
        long weight = 1;
        for (long place : places) {
            digest += weight * place;
            weight += 2;
        }
    }

    protected static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean)
                ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    protected static void begun() {
        wallNs = -System.nanoTime();
        cpuNs = -cpu();
    }

    protected static void ended() {
        wallNs += System.nanoTime();
        cpuNs += cpu();
    }

    protected static void read(String[] args) throws Exception {
        any = args[1].equals("any");
        steps = args[2].split(",");
        windowMs = Long.parseLong(args[3]);
        keyed = args[4];
        List<Event> out = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            String[] cells = line.split(",");
            Event event = new Event();
            event.node = cells[0].intern();
            event.type = cells[1].intern();
            event.time = Long.parseLong(cells[2]);
            event.key = Integer.parseInt(cells[3]);
            event.other = Integer.parseInt(cells[4]);
            event.place = out.size();
            out.add(event);
        }
        events = out.toArray(new Event[0]);
        spanMs = events[events.length - 1].time + 2 * windowMs + 1000;
    }

    protected void serve() throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        long base = spanMs;
        System.out.println("ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            inspecting = line.equals("inspect");
            matches = digest = 0;
            System.gc();
            run(base);
            base += spanMs;
            System.out.println(matches + " " + digest + " " + wallNs + " " + cpuNs);
        }
        System.exit(0);
    }
}
