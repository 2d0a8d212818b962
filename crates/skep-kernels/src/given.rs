//! What is given of one kernel: its types, its configuration and its symbols. All of it is optional, and makes more
//! verdicts certain.

use skep_btf::Btf;
use std::collections::HashSet;

/// What is given of the kernel that a verdict is asked of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// Its types, with those of its modules that count.
    pub types: Option<&'a Btf>,
    /// Its configuration.
    pub config: Option<&'a Configuration>,
    /// Its symbols.
    pub symbols: Option<&'a Symbols>,
}

/// A kernel's configuration: the options that it has.
#[derive(Clone, Debug, Default)]
pub struct Configuration(HashSet<Box<str>>);

impl Configuration {
    /// Reads lines such as `CONFIG_BPF_LSM=y`; others are ignored. An option has any value but `n`.
    pub fn parse(text: &str) -> Self {
        let options = text.lines().filter_map(|line| line.trim().split_once('='));
        Self(options.filter(|(_, value)| *value != "n").map(|(name, _)| name.into()).collect())
    }

    /// Whether it has an option, such as `CONFIG_BPF_LSM`.
    pub fn has(&self, option: &str) -> bool {
        self.0.contains(option)
    }
}

/// A kernel's symbols: functions and variables that have an address of their own.
#[derive(Clone, Debug, Default)]
pub struct Symbols(HashSet<Box<str>>);

impl Symbols {
    /// Reads lines of `/proc/kallsyms` or of `System.map`: an address, a letter, a name; others are ignored.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(|line| line.split_whitespace().nth(2)).map(Box::from).collect())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has a symbol of that name.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_options_that_are_set() {
        let config = Configuration::parse(
            "# Linux/x86 6.1.0 Kernel Configuration\nCONFIG_A=y\nCONFIG_B=m\n# CONFIG_C is not set\nCONFIG_D=n\nCONFIG_E=\"\"\n",
        );
        assert_eq!(
            ["A", "B", "C", "D", "E"].map(|name| config.has(&format!("CONFIG_{name}"))),
            [true, true, false, false, true]
        );
    }

    #[test]
    fn symbols_are_the_third_word_of_a_line() {
        let symbols =
            Symbols::parse("ffffffff81000000 T _text\n0000000000000000 t helper\t[module]\nnothing\n");
        assert_eq!(
            ["_text", "helper", "nothing", "[module]"].map(|name| symbols.has(name)),
            [true, true, false, false]
        );
        assert!(!symbols.is_empty());
    }
}
