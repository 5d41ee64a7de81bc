package peers;

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPDeployment;
import com.espertech.esper.runtime.client.EPEventService;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;

/** Esper: an EPL pattern, one deployment, the engine's clock set to each event's time. */
public final class EsperHarness extends Harness {
    private final EPEventService service;

    private EsperHarness() throws Exception {
        Configuration configuration = new Configuration();
        configuration.getCommon().addEventType("Event", Event.class);
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        configuration.getRuntime().getThreading().setListenerDispatchPreserveOrder(false);
        EPRuntime runtime = EPRuntimeProvider.getDefaultRuntime(configuration);
        EPCompiled compiled = EPCompilerProvider.getCompiler()
                .compile(epl(), new CompilerArguments(configuration));
        service = runtime.getEventService();
        service.clockExternal();
        service.advanceTime(0);
        EPDeployment deployment = runtime.getDeploymentService().deploy(compiled);
        for (var statement : deployment.getStatements()) {
            statement.addListener((found, gone, of, by) -> {
                matches += found.length;
                for (EventBean bean : inspecting ? found : new EventBean[0]) {
                    long[] places = new long[steps.length];
                    for (int i = 0; i < places.length; i++) {
                        places[i] = ((Event) bean.get(name(i))).place;
                    }
                    inspect(places);
                }
            });
        }
    }

    private static String name(int step) {
        return "s" + step;
    }

    /** The window starts with the first event: the guard is on the events after it. */
    private static String epl() {
        StringBuilder rest = new StringBuilder();
        StringBuilder names = new StringBuilder(name(0));
        for (int i = 1; i < steps.length; i++) {
            String filter = "type = '" + steps[i] + "'";
            if (keyed.equals("partition")) {
                filter += ", key = s0.key";
            } else if (keyed.equals("equal") && i == steps.length - 1) {
                filter += ", other = s0.key";
            }
            rest.append(i == 1 ? "" : " -> ").append(any ? "every " : "")
                    .append(name(i)).append(" = Event(").append(filter).append(")");
            names.append(", ").append(name(i));
        }
        return "select " + names + " from pattern [every s0 = Event(type = '" + steps[0]
                + "') -> ((" + rest + ") where timer:within(" + windowMs + " msec))]";
    }

    @Override
    protected void run(long base) {
        service.advanceTime(base);
        begun();
        for (Event event : events) {
            service.advanceTime(base + event.time);
            service.sendEventBean(event, "Event");
        }
        ended();
    }

    public static void main(String[] args) throws Exception {
        read(args);
        new EsperHarness().serve();
    }
}
