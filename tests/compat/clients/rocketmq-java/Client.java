import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Runs scenarios side by side: `Client NAME_SERVERS SCENARIO[,SCENARIO…] [name=value ...]`. Prints JSON, a line each,
 * with the name of its scenario; one that fails says so in a line of its own. */
public class Client {
    interface Scenario {
        void run(Servers servers, Lines lines) throws Exception;
    }

    static final Map<String, Scenario> SCENARIOS = new LinkedHashMap<>();

    static {
        SCENARIOS.put("sync", Sending::sync);
        SCENARIOS.put("async", Sending::async);
        SCENARIOS.put("oneway", Sending::oneWay);
        SCENARIOS.put("batch", Sending::batch);
        SCENARIOS.put("large", Sending::large);
        SCENARIOS.put("concurrent", Pushing::concurrent);
        SCENARIOS.put("orderly", Pushing::orderly);
        SCENARIOS.put("tags", Pushing::tags);
        SCENARIOS.put("groups", Pushing::twoGroups);
        SCENARIOS.put("retried", Pushing::retried);
        SCENARIOS.put("grown", Pushing::grown);
        SCENARIOS.put("broadcast", Broadcasting::broadcast);
        SCENARIOS.put("kept", Broadcasting::kept);
        SCENARIOS.put("sql", Selecting::sql);
        SCENARIOS.put("deadletter", DeadLetters::deadLetter);
        SCENARIOS.put("pull", Pulling::subscribed);
        SCENARIOS.put("assign", Pulling::assigned);
        SCENARIOS.put("requests", Requests::answered);
        SCENARIOS.put("restart", Restarts::underClients);
        SCENARIOS.put("names", Restarts::underNames);
        SCENARIOS.put("levels", Later::levels);
        SCENARIOS.put("transactions", Transactions::everyOutcome);
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int i = 2; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            options.put(pair[0], pair[1]);
        }
        Servers servers = new Servers(words[0], options);
        List<Thread> threads = new ArrayList<>();
        for (String name : words[1].split(",")) {
            Thread thread = new Thread(() -> run(name, servers));
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(0); // whatever threads a client left behind
    }

    private static void run(String name, Servers servers) {
        Lines lines = new Lines(name);
        try {
            SCENARIOS.get(name).run(servers, lines);
        } catch (Throwable failure) {
            StringWriter text = new StringWriter();
            failure.printStackTrace(new PrintWriter(text));
            lines.print("failed", text);
        }
    }
}
