"""Pure codecs of RocketMQ remoting that the broker and the client share. Know no socket and no meaning of a command."""
