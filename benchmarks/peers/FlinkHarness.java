package peers;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.legacy.RichSinkFunction;
import org.apache.flink.util.Collector;

/**
 * Flink CEP: each run is a job of its own in this process, in event time, parallelism 1. It is
 * measured from the first event that the source emits to the end of the sink, so that neither the
 * start of the job nor its end counts.
 */
public final class FlinkHarness extends Harness {
    /** A condition on the type alone. */
    private static final class OfType extends SimpleCondition<Event> {
        private final String type;

        private OfType(String type) {
            this.type = type;
        }

        @Override
        public boolean filter(Event event) {
            return event.type.equals(type);
        }
    }

    /** Counts the matches. */
    private static final class Places extends PatternProcessFunction<Event, Long> {
        private final int count = steps.length;

        @Override
        public void processMatch(
                Map<String, List<Event>> found, Context context, Collector<Long> out) {
            matches++;
            if (!inspecting) {
                return;
            }
            long[] places = new long[count];
            for (int i = 0; i < count; i++) {
                places[i] = found.get("s" + i).get(0).place;
            }
            inspect(places);
        }
    }

    /** A sink that discards its input; its end is the end of the run. */
    private static final class End extends RichSinkFunction<Long> {
        @Override
        public void finish() {
            ended();
        }
    }

    /**
     * A watermark for each event, as times increase. With the default, one each 200 ms, Flink CEP
     * scans all events since the last watermark once for each of them: at full speed that is
     * quadratic, and ten times slower.
     */
    private static final class EachEvent implements WatermarkGenerator<Event> {
        @Override
        public void onEvent(Event event, long timeMs, WatermarkOutput output) {
            output.emitWatermark(new Watermark(timeMs));
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    private static Pattern<Event, ?> pattern() {
        Pattern<Event, Event> pattern = Pattern
                .<Event>begin("s0", AfterMatchSkipStrategy.noSkip()).where(new OfType(steps[0]));
        for (int i = 1; i < steps.length; i++) {
            pattern = any ? pattern.followedByAny("s" + i) : pattern.followedBy("s" + i);
            pattern = pattern.where(new OfType(steps[i]));
        }
        return pattern.within(Duration.ofMillis(windowMs));
    }

    @Override
    protected void run(long base) throws Exception {
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.createLocalEnvironment(1, new Configuration());
        environment.getConfig().enableObjectReuse();
        GeneratorFunction<Long, Event> generator = number -> {
            if (number == 0) {
                begun();
            }
            return events[(int) (long) number];
        };
        TypeInformation<Event> type = TypeInformation.of(Event.class);
        DataStream<Event> stream = environment.fromSource(
                new DataGeneratorSource<>(generator, events.length, type),
                WatermarkStrategy.<Event>forGenerator(context -> new EachEvent())
                        .withTimestampAssigner((event, before) -> event.time),
                "events", type);
        if (keyed.equals("partition")) {
            stream = stream.keyBy((KeySelector<Event, Integer>) event -> event.key);
        }
        CEP.pattern(stream, pattern()).inEventTime().process(new Places(), TypeInformation.of(Long.class))
                .addSink(new End());
        environment.execute();
    }

    public static void main(String[] args) throws Exception {
        read(args);
        new FlinkHarness().serve();
    }
}
