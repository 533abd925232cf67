//! The built binary, from the outside: what an operator sees of each command.

mod commands;
