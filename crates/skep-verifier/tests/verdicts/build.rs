//! Programs of `*.verdicts` files as the verifier takes them. Tests of other crates include this file too.

use std::sync::{Arc, LazyLock};

use skep_abi::{
    Context, Entry as Given, MapDef, OWN_TYPE, Param, ParamTags, ProgramSource, Prototype, Section,
    SpecialKind,
};
use skep_btf::{Btf, Kind};
use skep_isa::{CallTarget, Imm64, Insn};
use skep_verdicts::{Described, Entry, Program, describe};

/// A flag of a load, as Linux numbers them.
const SLEEPABLE: u32 = 16;

/// Length in bytes of the buffer that `raw` programs receive.
const BUFFER: u32 = 16;

/// The types of Linux that the programs name, made by `cargo xtask verdicts --types BTF --out verdicts/linux.btf`.
pub(crate) fn linux_types() -> &'static Btf {
    static TYPES: LazyLock<Btf> = LazyLock::new(|| {
        let bytes: &[u8] = include_bytes!("../../verdicts/linux.btf");
        Btf::parse(bytes).expect("the committed types are sound")
    });
    &TYPES
}

/// A program, its maps, and what it is given.
pub(crate) type Built = (ProgramSource, Arc<[MapDef]>, Given);

/// A program with its maps and what it is given; `None` if skep has no such type.
pub(crate) fn source(entry: &Entry) -> Result<Option<Built>, String> {
    let program = Program::of(entry).map_err(|error| error.to_string())?;
    let Some(section) = Section::parse(&entry.section) else {
        return Ok(None);
    };
    let described = describe(entry, &program);
    let own = match &described {
        Some(described) => Some(Btf::parse(described.bytes.clone()).map_err(|error| error.to_string())?),
        None => None,
    };
    let maps: Result<Vec<MapDef>, String> = (0..entry.maps.len())
        .map(|index| definition(entry, index, described.as_ref(), own.as_ref()))
        .collect();
    let mut source = ProgramSource::new(entry.name.clone(), section.kind, linked(&program)?);
    source.functions = program.functions;
    for (slot, id) in described.iter().flat_map(|described| &described.functions) {
        for function in source.functions.iter_mut().filter(|function| function.start == *slot) {
            function.prototype = own.as_ref().and_then(|btf| prototype(btf, *id));
        }
    }
    source.gpl_compatible =
        ["GPL", "GPL v2", "Dual BSD/GPL", "Dual MIT/GPL"].contains(&entry.license.as_str());
    source.sleepable = section.sleepable || entry.flags & SLEEPABLE != 0;
    source.target = section.target.map(str::to_owned);
    source.btf = own.map(Arc::new);
    let given = match section.kind.context {
        Context::Buffer => Given::Buffer { len: BUFFER },
        _ => Given::Context,
    };
    Ok(Some((source, maps?.into(), given)))
}

/// The instructions, with the BTF ids of Linux's functions and variables.
fn linked(program: &Program) -> Result<Vec<Insn>, String> {
    let number = |index: i32, kind| {
        let name = usize::try_from(index).ok().and_then(|index| program.symbols.get(index));
        let name = name.map_or("", String::as_str);
        let id = linux_types().find(name, kind).and_then(|id| i32::try_from(id).ok());
        id.ok_or_else(|| format!("verdicts/linux.btf has no {name}: cargo xtask verdicts --types"))
    };
    let mut insns = program.insns.clone();
    for insn in &mut insns {
        match insn {
            Insn::Call { target: CallTarget::Kfunc { id, .. } } => *id = number(*id, Kind::Func)?,
            Insn::LoadImm64 { value: Imm64::Variable { id, .. }, .. } => *id = number(*id, Kind::Var)?,
            _ => {}
        }
    }
    Ok(insns)
}

fn definition(
    entry: &Entry,
    index: usize,
    described: Option<&Described>,
    own: Option<&Btf>,
) -> Result<MapDef, String> {
    let map = &entry.maps[index];
    let mut def = map.def.clone();
    if let Some(name) = &map.inner {
        let inner = entry.maps[..index].iter().position(|map| map.def.name == *name);
        let inner = inner.ok_or_else(|| format!("no map before {} is called {name}", def.name))?;
        def.inner = Some(Box::new(definition(entry, inner, described, own)?));
    }
    if let (Some(described), Some(own)) = (described, own) {
        let (key, value) = described.maps[index];
        if value != 0 {
            (def.key_btf, def.value_btf) = (Some(key), Some(value));
            def.fields = own.special_fields(value).map_err(|error| error.to_string())?;
            // What is kept is the kernel's, or the program's own.
            for (field, line) in def.fields.iter_mut().zip(&map.fields) {
                if let (
                    SpecialKind::Kptr { to }
                    | SpecialKind::KptrPercpu { to }
                    | SpecialKind::KptrUntrusted { to },
                    Some(of),
                ) = (&mut field.kind, &line.of)
                {
                    *to = linux_types().find(of, Kind::Struct).unwrap_or(*to | OWN_TYPE);
                }
            }
        }
    }
    if let Some(data) = &map.data {
        let bytes =
            (0..data.len()).step_by(2).filter_map(|at| u8::from_str_radix(data.get(at..at + 2)?, 16).ok());
        def.frozen = Some(bytes.collect());
    }
    Ok(def)
}

fn prototype(btf: &Btf, function: u32) -> Option<Prototype> {
    let ty = btf.prototype(function).ok()?;
    let mut params: Vec<Param> =
        ty.params().map(|param| Param { ty: param.ty, tags: ParamTags::default() }).collect();
    for tag in btf.decl_tags(function) {
        let param = tag.component.and_then(|index| params.get_mut(index as usize));
        let known = ParamTags::ALL.iter().find(|(name, _)| *name == tag.name);
        if let (Some(param), Some((_, known))) = (param, known) {
            param.tags = param.tags.union(*known);
        }
    }
    Some(Prototype { function, result: ty.target(), params })
}
