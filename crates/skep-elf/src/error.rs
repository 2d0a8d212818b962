//! Everything that can be wrong with an object file.
//!
//! Each variant carries what is needed to say which section, symbol or byte is at fault, and its text ends
//! with what to do about it.

use std::fmt;

use skep_abi::{MapKind, ProgramType, TYPES};
use skep_isa::DecodeError;

/// Why an object file, or one program of it, was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    // ---- not a BPF object ----------------------------------------------------------------------------
    /// The file does not begin as ELF files do.
    #[error(
        "this is not an ELF file: its {bytes} bytes do not begin with 7f 45 4c 46; give the object that \
         `clang -target bpf -c` wrote"
    )]
    NotElf {
        /// Length of what was given, in bytes.
        bytes: usize,
    },
    /// An ELF file of 32-bit class.
    #[error("this is a 32-bit ELF file, but BPF objects are 64-bit; compile with `clang -target bpf`")]
    Elf32,
    /// An ELF file for another machine.
    #[error(
        "this is an ELF file for {} (machine {machine}), not for BPF (machine 247); compile with \
         `clang -target bpf`",
        machine_name(*.machine)
    )]
    NotBpf {
        /// The machine number in its header.
        machine: u16,
    },
    /// A BPF object for big-endian machines.
    #[error("this BPF object is big-endian; compile with `clang -target bpfel`")]
    BigEndian,
    /// An executable or a shared library.
    #[error(
        "this BPF file is not relocatable (ELF type {elf_type}, not 1); compile with `clang -c`, without linking"
    )]
    NotRelocatable {
        /// The type number in its header.
        elf_type: u16,
    },
    /// A structure of the ELF file contradicts itself or the file's size.
    #[error("the object file is damaged: {place}: {reason}; copy or build it again")]
    Damaged {
        /// Which part.
        place: String,
        /// What is wrong with it.
        reason: String,
    },

    // ---- type information ----------------------------------------------------------------------------
    /// `.BTF` or `.BTF.ext` contradicts itself.
    #[error(
        "section {section} is damaged at byte {offset}: {reason}; build the object again with `clang -g`"
    )]
    BtfDamaged {
        /// `.BTF` or `.BTF.ext`.
        section: &'static str,
        /// Where in that section.
        offset: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// A type number that no type has.
    #[error("section .BTF is damaged: there is no type {id}; build the object again with `clang -g`")]
    BtfTypeMissing {
        /// The number.
        id: u32,
    },
    /// A chain of types that is longer than any compiler makes, most likely a loop.
    #[error("section .BTF is damaged: type {id} is made of itself; build the object again with `clang -g`")]
    BtfTypeEndless {
        /// Where the chain was entered.
        id: u32,
    },
    /// The size of a type that has none, or none that fits 32 bits, was needed.
    #[error("type {id} in section .BTF has no size that fits 32 bits; give a complete type")]
    BtfTypeUnsized {
        /// The type's number.
        id: u32,
    },

    /// Type information that cannot be used for another reason.
    #[error("section .BTF: {0}; build the object again with `clang -g`")]
    BtfUnusable(#[source] skep_btf::Error),

    // ---- maps ----------------------------------------------------------------------------------------
    /// Maps declared as `struct bpf_map_def`.
    #[error(
        "section {section} declares maps in the old form (struct bpf_map_def), but {reason}; declare them in \
         SEC(\".maps\") with __uint() and __type()"
    )]
    LegacyMaps {
        /// The section's name.
        section: String,
        /// What is wrong.
        reason: String,
    },
    /// Variables in an arena have no place.
    #[error("section {section} holds variables in an arena, but {reason}")]
    ArenaData {
        /// The section's name.
        section: String,
        /// Why they have no place, and what to do.
        reason: String,
    },
    /// `.maps` cannot be understood without type information.
    #[error(
        "section .maps declares maps by their types, but the object has no {missing}; compile with `clang -g`"
    )]
    MapsWithoutBtf {
        /// What is missing.
        missing: &'static str,
    },
    /// A map's declaration is not a structure, or not inside `.maps`.
    #[error("map {map}: its declaration {reason}; declare it as an anonymous struct in SEC(\".maps\")")]
    MapMalformed {
        /// The map.
        map: String,
        /// What is wrong with its declaration.
        reason: &'static str,
    },
    /// A map has an unknown attribute.
    #[error("map {map}: unknown attribute {attribute}; known are {}", known.join(", "))]
    MapAttributeUnknown {
        /// The map.
        map: String,
        /// The attribute.
        attribute: String,
        /// The attributes that maps have.
        known: &'static [&'static str],
    },
    /// An attribute of a map has a form it must not have.
    #[error("map {map}: attribute {attribute} is malformed; write {expected}")]
    MapAttributeMalformed {
        /// The map.
        map: String,
        /// The attribute.
        attribute: String,
        /// How it is to be written.
        expected: &'static str,
    },
    /// A map says two different sizes.
    #[error(
        "map {map}: {attribute} says {explicit} bytes, but the type has {from_type}; drop one of the two"
    )]
    MapSizeConflict {
        /// The map.
        map: String,
        /// `key_size` or `value_size`.
        attribute: &'static str,
        /// The size given as a number.
        explicit: u32,
        /// The size of the type given.
        from_type: u32,
    },
    /// A map without a kind.
    #[error("map {map} has no type; add __uint(type, BPF_MAP_TYPE_...)")]
    MapKindMissing {
        /// The map.
        map: String,
    },
    /// A map of a kind that skep does not know.
    #[error("map {map} is of the unknown type {number}; the last that is known is {} ({})",
        last_kind().number(), last_kind())]
    MapKindUnknown {
        /// The map.
        map: String,
        /// The UAPI number of the kind.
        number: u32,
    },
    /// A size that must not be zero is.
    #[error("map {map}: {attribute} is 0, but a map of type {kind} needs one; add {remedy}")]
    MapSizeZero {
        /// The map.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// `key_size` or `value_size`.
        attribute: &'static str,
        /// What to add.
        remedy: &'static str,
    },
    /// A size that the map's kind fixes is another.
    #[error("map {map}: {attribute} is {size}, but a map of type {kind} needs {expected}")]
    MapSizeWrong {
        /// The map.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// `key_size` or `value_size`.
        attribute: &'static str,
        /// The size given.
        size: u32,
        /// The size it must have.
        expected: u32,
    },
    /// A map of maps that does not say what the inner ones look like, or another map that does.
    #[error("map {map} of type {kind}: {reason}")]
    MapInner {
        /// The map.
        map: String,
        /// Its kind.
        kind: MapKind,
        /// What is wrong.
        reason: &'static str,
    },
    /// Locks, timers and the like stand in a map's value as they must not.
    #[error("map {map}: its value, {ty}, {reason}")]
    MapFields {
        /// The map.
        map: String,
        /// The value's type as C writes it.
        ty: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A pointer in a map's declaration that leads to no map and no program.
    #[error(
        "map {map}: the initial value at byte {offset} of section .maps names {symbol}, which is not a {expected}"
    )]
    MapEntryUnresolved {
        /// The map.
        map: String,
        /// Byte in `.maps`.
        offset: u64,
        /// The symbol named there.
        symbol: String,
        /// `map` or `program`.
        expected: &'static str,
    },

    // ---- programs ------------------------------------------------------------------------------------
    /// A program was asked for, but there is none.
    #[error("the object has no program; put one into a section such as SEC(\"xdp\")")]
    NoProgram,
    /// A program was asked for that does not exist.
    #[error("the object has no program {name}; it has {}", known.join(", "))]
    NoSuchProgram {
        /// The name asked for.
        name: String,
        /// Those that exist.
        known: Vec<String>,
    },
    /// The only program was asked for, but there are several.
    #[error("the object has several programs, name one of them: {}", known.join(", "))]
    SeveralPrograms {
        /// Those that exist.
        known: Vec<String>,
    },
    /// The section of a program stands for no type.
    #[error("program {program}: section {section} stands for no known program type; {}", Remedy(section))]
    UnknownSection {
        /// The program.
        program: String,
        /// Its section.
        section: String,
    },
    /// A function's bounds are impossible.
    #[error(
        "function {function} in section {section} {reason} (bytes {start} to {end}); build the object again"
    )]
    FunctionMalformed {
        /// The function.
        function: String,
        /// Its section.
        section: String,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// Bytes in a function are not an instruction.
    #[error("function {function} in section {section}, counted from its start: {error}")]
    BadInstruction {
        /// The function.
        function: String,
        /// Its section.
        section: String,
        /// What is wrong; its slots count from the function's start.
        #[source]
        error: DecodeError,
    },
    /// A program and all it calls is larger than slot numbers reach.
    #[error("program {program} has more than {} instruction slots with the functions it calls", i32::MAX)]
    ProgramTooLarge {
        /// The program.
        program: String,
    },
    /// A CO-RE relocation that cannot be applied.
    #[error(
        "function {function}, byte {offset} of section {section}: a CO-RE relocation ({kind} of {target}) {reason}"
    )]
    CoreRelocation {
        /// The function.
        function: String,
        /// Its section.
        section: String,
        /// Byte in the section.
        offset: u32,
        /// What is to be relocated.
        kind: &'static str,
        /// The type it is about.
        target: String,
        /// Why it cannot.
        reason: &'static str,
    },

    // ---- symbols of other places ---------------------------------------------------------------------------
    /// A configuration value of a type that it cannot have.
    #[error("configuration value {name} {reason}")]
    ConfigType {
        /// The variable.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The configuration gives a variable a value that it cannot take.
    #[error("configuration value {name}={value} {reason}; declare it with another type")]
    ConfigValue {
        /// The variable.
        name: String,
        /// What the configuration says.
        value: String,
        /// Why it does not fit.
        reason: &'static str,
    },
    /// A program uses a configuration value that the configuration does not have.
    #[error(
        "section {section}, byte {offset}: the configuration has no value {symbol}; give one that has, or declare \
         it with __weak"
    )]
    ConfigMissing {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The variable.
        symbol: String,
    },
    /// A program uses a function or variable of the kernel that the target does not have.
    #[error("section {section}, byte {offset}: {symbol} is declared with __ksym, but {reason}")]
    KernelSymbol {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The function or variable.
        symbol: String,
        /// What is missing.
        reason: &'static str,
    },

    // ---- relocations ---------------------------------------------------------------------------------
    /// A relocation beyond the end of what it relocates.
    #[error(
        "section {section}: a relocation at byte {offset}, but the section has {size} bytes; build the object again"
    )]
    RelocationOutside {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// Its size.
        size: u64,
    },
    /// A relocation at an instruction that it cannot be applied to.
    #[error("section {section}, byte {offset}: relocation {kind} against {symbol} {reason}")]
    RelocationUnsupported {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The relocation's type.
        kind: RelocationType,
        /// The symbol it names.
        symbol: String,
        /// Why not.
        reason: &'static str,
    },
    /// A symbol that is declared but defined nowhere in the object.
    #[error(
        "section {section}, byte {offset}: symbol {symbol} is not defined in this object; define it, link the \
         object that does, or declare it with __ksym or __kconfig and compile with `clang -g`"
    )]
    UnresolvedSymbol {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The symbol.
        symbol: String,
    },
    /// A reference to data that is in no map.
    #[error(
        "section {section}, byte {offset}: {symbol} is in section {target}, which is not loaded; put it into \
         .data, .rodata or .bss"
    )]
    DataNotLoaded {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The symbol.
        symbol: String,
        /// The section it is in.
        target: String,
    },
    /// A reference that leads out of the section it names.
    #[error(
        "section {section}, byte {offset}: {symbol} leads to byte {address} of section {target}, which has \
         {size}"
    )]
    AddressOutside {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The symbol.
        symbol: String,
        /// The section it leads to.
        target: String,
        /// Byte it leads to.
        address: i128,
        /// Size of that section.
        size: u64,
    },
    /// A reference into `.maps` that is no map's start.
    #[error("section {section}, byte {offset}: {symbol} is not a map; build the object again")]
    NotAMap {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The symbol.
        symbol: String,
    },
    /// A call or function address that leads to no function's start.
    #[error(
        "section {section}, byte {offset}: no function starts at byte {address} of section {target}; build \
         the object again"
    )]
    NotAFunction {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The section it leads to.
        target: String,
        /// Byte it leads to.
        address: i64,
    },
    /// Initialised data that holds an address.
    #[error(
        "section {section}, byte {offset}: the initial value is the address of {symbol}, which is not known \
         before the program runs; initialise the pointer in the program, or use an index"
    )]
    PointerInData {
        /// The data section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// The symbol.
        symbol: String,
    },
    /// An instruction that names a map or function by a number only a loader may write.
    #[error(
        "section {section}, byte {offset}: a 64-bit immediate load of kind {src} without a relocation; object \
         files name maps and functions by relocations"
    )]
    UnrelocatedLoad {
        /// The section.
        section: String,
        /// Byte in it.
        offset: u64,
        /// Its source register field.
        src: u8,
    },

    // ---- variables -----------------------------------------------------------------------------------
    /// A variable was asked for that does not exist.
    #[error("the object has no variable {name}")]
    NoSuchVariable {
        /// The name asked for.
        name: String,
    },
    /// A variable was given a value of another size.
    #[error("variable {name} has {size} bytes, but {given} were given")]
    VariableSize {
        /// The variable.
        name: String,
        /// Its size.
        size: u32,
        /// The size given.
        given: usize,
    },
}

impl From<skep_btf::Error> for Error {
    fn from(error: skep_btf::Error) -> Self {
        use skep_btf::Error as E;
        match error {
            E::Damaged { section, offset, reason } => Self::BtfDamaged { section, offset, reason },
            E::TypeMissing { id } => Self::BtfTypeMissing { id },
            E::Endless { id } => Self::BtfTypeEndless { id },
            E::Unsized { id } => Self::BtfTypeUnsized { id },
            other => Self::BtfUnusable(other),
        }
    }
}

/// The type of a BPF relocation, as ELF numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelocationType(pub u32);

impl fmt::Display for RelocationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("R_BPF_64_64"),
            2 => f.write_str("R_BPF_64_ABS64"),
            3 => f.write_str("R_BPF_64_ABS32"),
            4 => f.write_str("R_BPF_64_NODYLD32"),
            10 => f.write_str("R_BPF_64_32"),
            other => write!(f, "type {other}"),
        }
    }
}

/// Displays what to do about a section that stands for no program type.
struct Remedy<'a>(&'a str);

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ProgramType::suggested_by(self.0) {
            Some(kind) => write!(f, "say the type, probably --type {}", kind.name),
            None => write!(f, "say the type (--type), or use {Sections}"),
        }
    }
}

/// Displays the families of section names that stand for program types: `cgroup` for `cgroup/connect4` and all others.
struct Sections;

impl fmt::Display for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut families: Vec<String> = Vec::new();
        for section in TYPES.iter().flat_map(|kind| kind.sections) {
            let name = section.to_string();
            let family = name.split(['/', '.']).next().unwrap_or_default();
            if !families.iter().any(|known| known == family) {
                families.push(family.to_owned());
            }
        }
        f.write_str(&families.join(", "))
    }
}

/// The machines that object files are likely to be for.
fn machine_name(machine: u16) -> &'static str {
    match machine {
        3 => "x86",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        22 => "s390",
        40 => "Arm",
        62 => "x86-64",
        183 => "AArch64",
        243 => "RISC-V",
        258 => "LoongArch",
        263 => "SBPF (Solana)",
        _ => "another machine",
    }
}

fn last_kind() -> MapKind {
    MapKind::ALL[MapKind::ALL.len() - 1]
}
