import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/** JSON objects on the standard output, one a line. */
final class Lines {
    /** `print("topic", "a", "offset", 1)`: names and values in turn. */
    static void print(Object... namesAndValues) {
        System.out.println(json(object(namesAndValues)));
        System.out.flush();
    }

    static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return fields;
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map<?, ?> map) {
            return "{" + joined(map.entrySet().stream()
                    .map(entry -> json(String.valueOf(entry.getKey())) + ": " + json(entry.getValue())).toList()) + "}";
        }
        if (value instanceof Collection<?> items) {
            return "[" + joined(items.stream().map(Lines::json).toList()) + "]";
        }
        return quoted(value.toString());
    }

    private static String joined(Collection<String> parts) {
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

    private Lines() {}
}
