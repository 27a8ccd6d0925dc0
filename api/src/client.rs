//! Asks a daemon over its unix socket.
