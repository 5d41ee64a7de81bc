package peers;

import io.siddhi.core.SiddhiAppRuntime;
import io.siddhi.core.SiddhiManager;
import io.siddhi.core.stream.output.StreamCallback;
import io.siddhi.core.stream.input.InputHandler;

/** Siddhi: a pattern in playback mode, where the clock is the events' time. It has no `any`. */
public final class SiddhiHarness extends Harness {
    private static final io.siddhi.core.event.Event[] NONE = {};
    private final InputHandler input;

    private SiddhiHarness() {
        SiddhiAppRuntime runtime = new SiddhiManager().createSiddhiAppRuntime(app());
        runtime.addCallback("Found", new StreamCallback() {
            @Override
            public void receive(io.siddhi.core.event.Event[] found) {
                matches += found.length;
                for (io.siddhi.core.event.Event one : inspecting ? found : NONE) {
                    long[] places = new long[steps.length];
                    for (int i = 0; i < places.length; i++) {
                        places[i] = (Long) one.getData(i);
                    }
                    inspect(places);
                }
            }
        });
        input = runtime.getInputHandler("Events");
        runtime.start();
    }

    /** Siddhi's window includes a span equal to it, so it is one millisecond less. */
    private static String app() {
        StringBuilder pattern = new StringBuilder("every ");
        StringBuilder names = new StringBuilder();
        for (int i = 0; i < steps.length; i++) {
            pattern.append(i == 0 ? "" : " -> ").append("s").append(i)
                    .append("=Events[type == '").append(steps[i]).append("']");
            names.append(i == 0 ? "" : ", ").append("s").append(i).append(".place as p").append(i);
        }
        String query = "from " + pattern + " within " + (windowMs - 1)
                + " milliseconds select " + names + " insert into Found;";
        if (keyed.equals("partition")) {
            query = "partition with (key of Events) begin " + query + " end;";
        }
        return "@app:playback define stream Events (type string, key int, place long); " + query;
    }

    @Override
    protected void run(long base) throws Exception {
        begun();
        for (Event event : events) {
            input.send(base + event.time, new Object[] {event.type, event.key, event.place});
        }
        ended();
    }

    public static void main(String[] args) throws Exception {
        read(args);
        if (any) {
            throw new IllegalArgumentException("Siddhi's patterns have no skip-till-any-match");
        }
        new SiddhiHarness().serve();
    }
}
