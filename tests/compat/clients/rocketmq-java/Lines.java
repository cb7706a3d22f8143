import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON objects on the standard output, one a line, each with the name of its scenario. */
final class Lines {
    private static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in));

    private final String scenario;

    Lines(String scenario) {
        this.scenario = scenario;
    }

    /** `print("topic", "a", "offset", 1)`: names and values in turn. */
    void print(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("scenario", scenario);
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        synchronized (System.out) {
            System.out.println(json(fields));
            System.out.flush();
        }
    }

    /** Says that something is done, and waits for a line of the test. */
    void pause(String done) throws IOException {
        print("done", done);
        INPUT.readLine();
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map<?, ?> map) {
            return "{" + joined(map.entrySet().stream()
                    .map(entry -> quoted(String.valueOf(entry.getKey())) + ": " + json(entry.getValue())).toList()) + "}";
        }
        if (value instanceof Object[] items) {
            return json(Arrays.asList(items));
        }
        if (value instanceof Collection<?> items) {
            return "[" + joined(items.stream().map(Lines::json).toList()) + "]";
        }
        return quoted(value.toString());
    }

    private static String joined(List<String> parts) {
        return String.join(", ", parts);
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < 0x20) {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
