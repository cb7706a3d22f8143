package shop;

/** Sent as JSON. */
public record Order(int number, String state) {}
