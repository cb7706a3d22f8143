import java.util.HashMap;
import java.util.Map;

/** Runs one scenario: `Client BOOTSTRAP SCENARIO [name=value ...]`. Prints JSON, a line each; fails with a sentence. */
public final class Client {
    interface Scenario {
        void run(Cluster cluster, Map<String, String> options) throws Exception;
    }

    static final Map<String, Scenario> SCENARIOS = new HashMap<>();

    static {
        SCENARIOS.put("codecs", Producing::everyCodec);
        SCENARIOS.put("idempotent", Producing::idempotent);
        SCENARIOS.put("large", Producing::large);
        SCENARIOS.put("transactions", Transactions::bothWays);
        SCENARIOS.put("offsets", Transactions::offsets);
        SCENARIOS.put("fenced", Transactions::fenced);
        SCENARIOS.put("groups", Groups::twoGroups);
        SCENARIOS.put("resume", Groups::resume);
        SCENARIOS.put("resumed", Groups::resumed);
        SCENARIOS.put("times", Times::seek);
        SCENARIOS.put("many", ManyTopics::all);
        SCENARIOS.put("admin", Administration::topics);
        SCENARIOS.put("admin-groups", Administration::groups);
        SCENARIOS.put("admin-rest", Administration::rest);
    }

    public static void main(String[] arguments) {
        if (arguments.length < 2 || !SCENARIOS.containsKey(arguments[1])) {
            System.err.println("usage: Client BOOTSTRAP SCENARIO [name=value ...], of " + SCENARIOS.keySet());
            System.exit(2);
        }
        Map<String, String> options = new HashMap<>();
        for (int i = 2; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            options.put(pair[0], pair[1]);
        }
        try {
            SCENARIOS.get(arguments[1]).run(new Cluster(arguments[0]), options);
        } catch (Throwable failure) {
            System.err.println("scenario " + arguments[1] + " failed: " + failure);
            failure.printStackTrace();
            System.exit(1);
        }
        System.exit(0); // whatever threads a client left behind
    }

    private Client() {}
}
