import java.util.HashMap;
import java.util.Map;

/** Runs one scenario: `Client ADDRESS SCENARIO [name=value ...]`. Prints JSON, a line each; fails with a sentence. */
public final class Client {
    interface Scenario {
        void run(Broker broker, Map<String, String> options) throws Exception;
    }

    static final Map<String, Scenario> SCENARIOS = new HashMap<>();

    static {
        SCENARIOS.put("confirms", Publishing::confirms);
        SCENARIOS.put("returns", Publishing::returns);
        SCENARIOS.put("bodies", Publishing::bodies);
        SCENARIOS.put("headers", Publishing::headers);
        SCENARIOS.put("transactions", Publishing::transactions);
        SCENARIOS.put("prefetch", Consuming::prefetch);
        SCENARIOS.put("cut", Consuming::cut);
        SCENARIOS.put("rpc", Consuming::rpc);
        SCENARIOS.put("cancelled", Consuming::cancelled);
        SCENARIOS.put("dead-letters", Failing::deadLetters);
        SCENARIOS.put("mistakes", Failing::mistakes);
        SCENARIOS.put("many", Many::many);
    }

    public static void main(String[] arguments) {
        if (arguments.length < 2 || !SCENARIOS.containsKey(arguments[1])) {
            System.err.println("usage: Client ADDRESS SCENARIO [name=value ...], of " + SCENARIOS.keySet());
            System.exit(2);
        }
        Map<String, String> options = new HashMap<>();
        for (int i = 2; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            options.put(pair[0], pair[1]);
        }
        try {
            Broker broker = new Broker(arguments[0]);
            SCENARIOS.get(arguments[1]).run(broker, options);
            broker.disconnect();
        } catch (Throwable failure) {
            System.err.println("scenario " + arguments[1] + " failed: " + failure);
            failure.printStackTrace();
            System.exit(1);
        }
        System.exit(0); // whatever threads a client left behind
    }

    private Client() {}
}
