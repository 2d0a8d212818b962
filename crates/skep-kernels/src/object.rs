//! What an object needs as a whole: libbpf loads none of its programs if a map cannot be created, or if a function or
//! variable of the kernel is missing that is not declared weak.

use crate::given::Given;
use crate::judge::{Found, came};
use crate::judgement::{Obstacle, Rule};
use crate::{Version, documented, feature};
use skep_abi::{AttachTo, Context, MapDef, MapKind, Section};
use skep_btf::{Kind, essential_name};
use skep_elf::DeclarationKind;
use std::collections::HashMap;

/// What an object needs as a whole.
#[derive(Clone, Debug, Default)]
pub struct Object {
    maps: Vec<MapDef>,
    /// Functions, variables and addresses of the kernel that must exist.
    symbols: Vec<(String, DeclarationKind)>,
    /// Members of structures that its programs implement.
    members: Vec<String>,
    /// Whether structures of functions are attached by links.
    links: bool,
    /// By program.
    sections: HashMap<String, String>,
}

impl Object {
    /// The needs of that object.
    pub fn of(object: &skep_elf::Object) -> Self {
        let declarations = object.declarations().into_iter();
        let needed = declarations.filter(|symbol| !symbol.weak && symbol.kind != DeclarationKind::Config);
        let member = |program: &skep_elf::Program| {
            let kind = program.program_type().ok()?;
            let is_member = matches!(kind.context, Context::Arguments { of: AttachTo::StructOps });
            is_member.then(|| program.target().ok()?).flatten()
        };
        let section = |program: &skep_elf::Program| (program.name().to_owned(), program.section().to_owned());
        // The size that libbpf takes from the type of values.
        let with_size = |def: &MapDef| {
            let types = object.btf().zip(def.value_btf);
            let declared = types.and_then(|(types, id)| types.size(id).ok()).filter(|size| *size != 0);
            MapDef { value_size: declared.unwrap_or(def.value_size), ..def.clone() }
        };
        Self {
            maps: object.maps().iter().map(|map| with_size(&map.def)).collect(),
            symbols: needed.map(|symbol| (symbol.name.to_owned(), symbol.kind)).collect(),
            members: object.programs().iter().filter_map(member).collect(),
            links: object.has_section(".struct_ops.link"),
            sections: object.programs().iter().map(section).collect(),
        }
    }

    /// The same for a loader that sets the type of each program: the names of sections do not matter.
    pub fn with_types_set(self) -> Self {
        Self { sections: HashMap::new(), ..self }
    }

    /// The kind of the map of that index.
    pub(crate) fn map_kind(&self, index: usize) -> Option<MapKind> {
        self.maps.get(index).map(|map| map.kind)
    }

    /// What the release lacks.
    pub(crate) fn needs(&self, given: &Given<'_>, version: Version, found: &mut Found) {
        self.maps.iter().for_each(|def| map(def, version, found));
        if self.links && version < LINKS {
            let text = came("a structure of functions that a link attaches (.struct_ops.link)", Some(LINKS));
            found.certain(obstacle(Rule::Map, text, Some(LINKS)));
        }
        for (name, kind) in &self.symbols {
            symbol(name, *kind, given, version, found);
        }
        for name in &self.members {
            let Some((types, (structure, member))) = given.types.zip(name.split_once('.')) else { continue };
            let known = types.find(structure, Kind::Struct).and_then(|id| types.ty(id).ok());
            let exists = known.is_some_and(|ty| ty.members().any(|found| found.name() == Ok(member)));
            if !exists {
                let text = format!("the given types have no member {name}");
                found.certain(obstacle(Rule::KernelType, text, None));
            }
        }
    }

    /// Whether libbpf knows the section of that program.
    pub(crate) fn section(&self, program: &str, version: Version, found: &mut Found) {
        let Some(section) = self.sections.get(program) else { return };
        let frags = section.split('/').next().is_some_and(|first| first.ends_with(".frags"));
        if frags && version < FRAGS {
            let text = came("programs for packets in several pieces (.frags)", Some(FRAGS));
            found.certain(obstacle(Rule::ProgramType, text, Some(FRAGS)));
        }
        let is_member = section.trim_start_matches('?').starts_with("struct_ops");
        if !self.members.is_empty() && !is_member && version < MEMBERS_COMPARED {
            let text = "libbpf also loads the programs of the structures of functions in the object";
            found.doubt(obstacle(Rule::Missing, text.to_owned(), None));
        }
        let named = Section::parse(section).and_then(|parsed| Some((parsed.kind.number?, parsed.target?)));
        let is_its_own = matches!(section.trim_start_matches('?'), "tc/ingress" | "tc/egress");
        if !is_its_own && named.is_some_and(|(kind, _)| WITHOUT_NAMES.contains(&kind)) {
            let text = format!(
                "libbpf 1.0 and later know no section {section}: the loader has to set the type (--type)"
            );
            found.certain(obstacle(Rule::ProgramType, text, None));
        }
    }
}

const FRAGS: Version = Version::new(5, 18);
/// Bytes of an array's value.
const LARGE_VALUE: u32 = 4 << 20;
/// The last release that is known to refuse larger ones, and the first that is known to take them.
const LARGE_VALUES: (Version, Version) = (Version::new(5, 10), Version::new(6, 1));
/// Since then keys of hash tables may have more than 512 bytes.
const LONG_KEYS: Version = Version::new(5, 11);

/// Programs of structures of functions were compared since then.
const MEMBERS_COMPARED: Version = Version::new(6, 12);

/// Structures of functions are attached by links since then.
const LINKS: Version = Version::new(6, 4);

/// Program types whose sections have no name of a target behind them in libbpf 1.0 and later.
const WITHOUT_NAMES: &[u32] =
    &[1, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 25, 30, 31, 32];

fn obstacle(rule: Rule, text: String, since: Option<Version>) -> Obstacle {
    Obstacle { rule, text, since, place: None }
}

fn map(map: &MapDef, version: Version, found: &mut Found) {
    let since = documented::map_kind(map.kind.number());
    if since.is_some_and(|since| version < since) {
        let text = came(&format!("map {}: the kind {}", map.name, map.kind), since);
        found.certain(obstacle(Rule::Map, text, since));
    }
    for bit in (0..32).filter(|bit| map.flags.0 >> bit & 1 == 1) {
        let since = documented::map_flag(bit);
        if since.is_some_and(|since| version < since) {
            let text = came(&format!("map {}: the flag {:#x}", map.name, 1u32 << bit), since);
            found.certain(obstacle(Rule::Map, text, since));
        }
    }
    for lacking in map.fields.iter().filter_map(|field| feature::of_field(field.kind)) {
        if version < lacking.since {
            let text = came(&format!("map {}: {}", map.name, lacking.what), Some(lacking.since));
            found.doubt(obstacle(Rule::Map, text, Some(lacking.since)));
        }
    }
    let ring = matches!(map.kind, MapKind::Ringbuf | MapKind::UserRingbuf);
    if ring && (map.key_size != 0 || map.value_size != 0 || map.value_btf.is_some()) {
        let text = format!("map {}: a ring buffer has no keys and no values; drop their types", map.name);
        found.certain(obstacle(Rule::Map, text, None));
    }
    if map.kind == MapKind::StackTrace && map.value_size == 0 {
        let text = format!("map {}: values of no size; the loader has to set it", map.name);
        found.certain(obstacle(Rule::Map, text, None));
    }
    let numbers = matches!(map.kind, MapKind::PerfEventArray | MapKind::ProgArray | MapKind::CgroupArray);
    if numbers && (map.value_size > 4 || map.key_size > 4) {
        let text = format!("map {}: keys and values of this kind are numbers of four bytes", map.name);
        found.certain(obstacle(Rule::Map, text, None));
    }
    if map.kind == MapKind::Array && map.value_size > LARGE_VALUE && version < LARGE_VALUES.1 {
        let text = came(&format!("map {}: values of more than 4 MiB", map.name), Some(LARGE_VALUES.1));
        let obstacle = obstacle(Rule::Map, text, Some(LARGE_VALUES.1));
        match version <= LARGE_VALUES.0 {
            true => found.certain(obstacle),
            false => found.doubt(obstacle),
        }
    }
    let hash = matches!(
        map.kind,
        MapKind::Hash | MapKind::PercpuHash | MapKind::LruHash | MapKind::LruPercpuHash | MapKind::HashOfMaps
    );
    if hash && map.key_size > 512 && version < LONG_KEYS {
        let text = came(&format!("map {}: a key of more than 512 bytes", map.name), Some(LONG_KEYS));
        found.certain(obstacle(Rule::Map, text, Some(LONG_KEYS)));
    }
    if let Some(inner) = &map.inner {
        self::map(inner, version, found);
    }
}

fn symbol(name: &str, kind: DeclarationKind, given: &Given<'_>, version: Version, found: &mut Found) {
    let essential = essential_name(name);
    let wanted = match kind {
        DeclarationKind::Function | DeclarationKind::Address => Kind::Func,
        DeclarationKind::Variable => Kind::Var,
        DeclarationKind::Config => return,
    };
    let since = documented::function(essential).filter(|_| kind == DeclarationKind::Function);
    if since.is_some_and(|since| version < since) {
        let text = came(&format!("the kernel function {essential}, which the object needs,"), since);
        return found.certain(obstacle(Rule::KernelFunction, text, since));
    }
    if kind == DeclarationKind::Address {
        match given.symbols {
            Some(symbols) if symbols.has(name) => {}
            Some(_) => {
                let text = format!("the given symbols have no {name}, whose address the object needs");
                found.certain(obstacle(Rule::KernelType, text, None));
            }
            None => {
                let text =
                    format!("it is not known whether the kernel has {name}, whose address the object needs");
                found.doubt(obstacle(Rule::Missing, text, None));
            }
        }
        return;
    }
    // Without types the program's own verdict says what is missing.
    if given.types.is_some_and(|types| types.find(essential, wanted).is_none()) {
        let text = format!("the given types have no {essential}, which the object needs");
        found.certain(obstacle(Rule::KernelType, text, since));
    }
}
