//! `func:` lines: prototypes, to be written as BTF.

/// The type of an argument or result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A number: its name in BTF, bytes, and whether it is signed.
    Number(&'static str, u32, bool),
    /// `void`.
    Void,
    /// The address of the program's context.
    Context,
    /// The address of that many bytes.
    Memory(u32),
    /// The address of a number.
    NumberAt(&'static str, u32, bool),
    /// The address of a structure of the kernel.
    Struct(String),
}

/// The prototype of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionLine {
    /// Its name, a label of the program.
    pub name: String,
    /// Whether it is global, and so verified by its prototype alone.
    pub global: bool,
    /// Its result.
    pub result: Argument,
    /// Its arguments, each with its tags.
    pub arguments: Vec<(Argument, Vec<String>)>,
}

/// Number types: their spelling here, and their names in BTF.
const NUMBERS: [(&str, &str, u32, bool); 11] = [
    ("int", "int", 4, true),
    ("char", "char", 1, true),
    ("long", "long", 8, true),
    ("u8", "unsigned char", 1, false),
    ("u16", "unsigned short", 2, false),
    ("u32", "unsigned int", 4, false),
    ("u64", "unsigned long", 8, false),
    ("s8", "signed char", 1, true),
    ("s16", "short", 2, true),
    ("s32", "int", 4, true),
    ("s64", "long", 8, true),
];

/// Tags of arguments.
const TAGS: [&str; 5] = ["ctx", "nonnull", "nullable", "trusted", "arena"];

impl FunctionLine {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let shape = || "expected `NAME static|global RESULT(ARGUMENT, ...)`".to_owned();
        let (head, arguments) =
            text.strip_suffix(')').and_then(|text| text.split_once('(')).ok_or_else(shape)?;
        let mut words = head.split_whitespace();
        let (name, linkage) = words.next().zip(words.next()).ok_or_else(shape)?;
        let global = match linkage {
            "global" => true,
            "static" => false,
            _ => return Err(shape()),
        };
        let result = words.collect::<Vec<_>>().join(" ");
        let arguments = match arguments.trim() {
            "" | "void" => Vec::new(),
            list => list.split(',').map(Self::argument).collect::<Result<_, _>>()?,
        };
        Ok(Self { name: name.to_owned(), global, result: Argument::parse(&result)?, arguments })
    }

    fn argument(text: &str) -> Result<(Argument, Vec<String>), String> {
        let mut rest = text.trim();
        let mut tags = Vec::new();
        while let Some((word, tail)) = rest.split_once(' ') {
            if !TAGS.contains(&word) {
                break;
            }
            tags.push(word.to_owned());
            rest = tail.trim_start();
        }
        Ok((Argument::parse(rest)?, tags))
    }
}

impl Argument {
    fn parse(text: &str) -> Result<Self, String> {
        let number = |name: &str| NUMBERS.iter().find(|row| row.0 == name).map(|row| (row.1, row.2, row.3));
        let unknown = || format!("{text} is not a type");
        if let Some((name, bytes, signed)) = number(text) {
            return Ok(Self::Number(name, bytes, signed));
        }
        match text {
            "void" => return Ok(Self::Void),
            "ctx" => return Ok(Self::Context),
            _ => {}
        }
        let target = text.strip_suffix('*').ok_or_else(unknown)?.trim();
        if let Some((name, bytes, signed)) = number(target) {
            Ok(Self::NumberAt(name, bytes, signed))
        } else if let Some(name) = target.strip_prefix("struct ") {
            Ok(Self::Struct(name.trim().to_owned()))
        } else {
            let bytes = target.strip_prefix("mem").and_then(|bytes| bytes.parse().ok());
            bytes.map(Self::Memory).ok_or_else(unknown)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prototypes_are_read() {
        let line =
            FunctionLine::parse("f global int(ctx, nonnull mem16 *, struct task_struct *, u64)").unwrap();
        assert!(line.global);
        assert_eq!(line.result, Argument::Number("int", 4, true));
        assert_eq!(line.arguments[1], (Argument::Memory(16), vec!["nonnull".to_owned()]));
        assert_eq!(line.arguments[2].0, Argument::Struct("task_struct".to_owned()));
        assert_eq!(FunctionLine::parse("f static void()").unwrap().arguments, []);
        assert!(FunctionLine::parse("f int()").is_err());
        assert!(FunctionLine::parse("f static int(float)").is_err());
    }
}
