/** The scenarios that need a client of 5.x besides those of `Client`. */
public final class NewerClient extends Client {
    static {
        SCENARIOS.put("namespaces", Sharing::namespaces);
        SCENARIOS.put("members", Sharing::membersComeAndGo);
        SCENARIOS.put("many", Sharing::manyTopics);
        SCENARIOS.put("stuck", Sharing::stuck);
        SCENARIOS.put("rest", Sharing::rest);
        SCENARIOS.put("times", Timed::times);
        SCENARIOS.put("beginnings", Timed::beginnings);
        SCENARIOS.put("blocked", Failing::blocked);
        SCENARIOS.put("trace", Failing::trace);
        SCENARIOS.put("pop", Popping::popped);
        SCENARIOS.put("stalled", Troubles::stalled);
        SCENARIOS.put("elsewhere", Troubles::elsewhere);
    }

    public static void main(String[] words) throws Exception {
        Client.main(words);
    }

    private NewerClient() {}
}
