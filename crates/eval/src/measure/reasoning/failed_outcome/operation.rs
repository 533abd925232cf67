//! The operation of a call, by the words of its command or of its arguments.
//!
//! In: a call. Out: its [`CallWords`]: whether it only reads, whether a later call is about the same operation, and
//! whether a text is about the call.

use foldhash::HashSet;

use crate::measure::conversation::runs_code;
use crate::measure::identifier::identifier_words;
use crate::measure::provenance::values;
use crate::recognise::Call;

/// Maximum bytes of a value of an argument that is read.
const MAX_VALUE_BYTES: usize = 2_000;
/// Maximum words of a call, and of a text, that are compared.
const MAX_WORDS: usize = 200;
/// Minimum letters of a word by which a text is about a call.
const MIN_LETTERS: usize = 4;
/// Minimum letters of the name of a program by which a text is about a call.
const MIN_PROGRAM_LETTERS: usize = 3;
/// Maximum letters in which two forms of a word differ at their ends.
const MAX_ENDING: usize = 3;

/// Programs that only read, change nothing outside the shell, or fail where nothing is left to remove.
const READERS: [&str; 40] = [
    "cat",
    "cd",
    "cut",
    "diff",
    "echo",
    "env",
    "export",
    "file",
    "find",
    "grep",
    "egrep",
    "head",
    "jq",
    "journalctl",
    "less",
    "ls",
    "more",
    "printf",
    "pwd",
    "rg",
    "sed",
    "set",
    "sleep",
    "sort",
    "source",
    "stat",
    "tail",
    "tee",
    "tree",
    "true",
    "uniq",
    "wc",
    "which",
    "awk",
    "rm",
    "rmdir",
    "unlink",
    "kill",
    "pkill",
    "umount",
];
/// Subcommands of other programs that only read.
const READING: [&str; 12] = [
    "log", "logs", "show", "diff", "blame", "describe", "history", "events", "explain", "inspect", "help",
    "list",
];
/// Words of commands that start a program which runs until it is stopped.
const SERVING: [&str; 7] = ["dev", "listen", "serve", "server", "start", "up", "watch"];
/// Words before the program of a command.
const PREFIXES: [&str; 5] = ["sudo", "time", "nice", "npx", "exec"];

/// Keys of arguments with a command or code, and of those with the arguments of the program that the tool is.
const COMMAND_KEYS: [&str; 8] = ["command", "cmd", "code", "script", "commands", "cmdline", "shell", "input"];
const PROGRAM_KEYS: [&str; 3] = ["args", "arguments", "argv"];

/// The words of a call.
#[derive(Default)]
pub(super) struct CallWords {
    /// Whether the call runs a command or code.
    pub is_command: bool,
    /// Whether each part of the command only reads.
    pub only_reads: bool,
    /// The programs of a command.
    programs: HashSet<String>,
    /// The other words of the command, or of the arguments, in lower case.
    words: HashSet<String>,
    /// The words of the tool's name; none for a tool that runs code.
    name: Vec<String>,
}

impl CallWords {
    pub(super) fn from_call(call: &Call) -> CallWords {
        let mut out = CallWords::default();
        let name = call.name.trim();
        let values: Vec<(&str, String)> =
            values(call).filter(|(_, value)| value.len() <= MAX_VALUE_BYTES).collect();
        let is_command = |key: &str| COMMAND_KEYS.contains(&key);
        let is_program = values.iter().any(|(key, _)| PROGRAM_KEYS.contains(key));
        out.is_command = values.iter().any(|(key, _)| is_command(key)) || is_program;
        out.only_reads = out.is_command;
        if !runs_code(name) {
            out.name = identifier_words(name);
        }
        for (key, value) in &values {
            let parts = || value.split([';', '|', '&', '\n']);
            match (is_command(key), PROGRAM_KEYS.contains(key)) {
                (true, _) => parts().for_each(|part| out.add_command(part)),
                // The tool is the program, and the value has its arguments.
                (_, true) => parts().for_each(|part| out.add_command(&format!("{name} {part}"))),
                _ => out.add_words(value.split(is_separator)),
            }
        }
        out
    }

    /// Adds the words of one command of a shell.
    fn add_command(&mut self, command: &str) {
        let is_prefix = |word: &&str| PREFIXES.contains(word) || word.contains('=') || word.starts_with('-');
        let mut words = command.split_whitespace().skip_while(is_prefix);
        let Some(program) = words.next().map(|word| word.rsplit('/').next().unwrap_or(word)) else { return };
        let rest: Vec<&str> = words.collect();
        let is_subcommand = |word: &&str| READING.contains(word);
        if READERS.contains(&program) || rest.iter().take(2).any(is_subcommand) {
            return;
        }
        self.only_reads = false;
        if self.programs.len() < MAX_WORDS {
            self.programs.insert(program.to_lowercase());
        }
        self.add_words(rest.into_iter().flat_map(|word| word.split(is_separator)));
    }

    fn add_words<'w>(&mut self, words: impl Iterator<Item = &'w str>) {
        let left = MAX_WORDS.saturating_sub(self.words.len());
        self.words.extend(words.filter(|word| word.len() > 1).take(left).map(str::to_lowercase));
    }

    /// Whether a later call with these words is about the same operation.
    pub(super) fn is_repeated_by(&self, later: &CallWords) -> bool {
        let has_shared =
            |one: &HashSet<String>, other: &HashSet<String>| one.iter().any(|word| other.contains(word));
        match self.is_command && later.is_command {
            true => {
                has_shared(&self.words, &later.words)
                    || has_shared(&self.words, &later.programs)
                    || has_shared(&self.programs, &later.words)
                    || self.words.is_empty() && has_shared(&self.programs, &later.programs)
            }
            false => has_shared(&self.words, &later.words),
        }
    }

    /// Whether the command may start a program that runs until it is stopped.
    pub(super) fn may_start_server(&self) -> bool {
        self.words.iter().chain(&self.programs).any(|word| SERVING.contains(&word.as_str()))
    }

    /// Whether a text has a form of one of the words.
    pub(super) fn are_in(&self, text: &str) -> bool {
        // Where no spaces separate words, a word of the call may be next to others.
        if !text.is_ascii()
            && self.words.iter().any(|word| word.len() >= MIN_LETTERS && text.to_lowercase().contains(word))
        {
            return true;
        }
        let mut words = text.split(is_separator).take(MAX_WORDS).map(str::to_lowercase);
        words.any(|word| {
            let mut call_words = self.words.iter().chain(&self.programs).chain(&self.name);
            call_words.any(|call_word| are_forms(call_word, &word))
                || word.len() >= MIN_PROGRAM_LETTERS && self.programs.contains(&word)
        })
    }
}

fn is_separator(c: char) -> bool {
    !c.is_alphanumeric()
}

/// Whether two words in lower case differ only in their endings: "build" and "built", "apply" and "applied".
fn are_forms(one: &str, other: &str) -> bool {
    let shared: usize = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let longest = one.chars().count().max(other.chars().count());
    let shortest = one.chars().count().min(other.chars().count());
    shared >= MIN_LETTERS && shared + 1 >= shortest && shared + MAX_ENDING >= longest
}
