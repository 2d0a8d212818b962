use skep_abi::*;
use skep_isa::*;
use skep_verifier::*;
use std::collections::BTreeMap;
fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).unwrap();
        for entry in text.split("\n== ").skip(1) {
            let (head, insns) = entry.split_once("insns:\n").unwrap();
            let name = head.lines().next().unwrap();
            let get = |k: &str| head.lines().find_map(|l| l.strip_prefix(k)).map(|s| s.trim().to_owned());
            let ty = get("type:").unwrap();
            let section = Section::parse(&ty).unwrap();
            let mut maps: Vec<MapDef> = vec![];
            for l in head.lines().filter_map(|l| l.strip_prefix("map:")) {
                let w: Vec<_> = l.split_whitespace().collect();
                let kind = MapKind::ALL.iter().copied().find(|k| k.name() == w[1]).unwrap();
                let n = |i: usize| w[i].parse().unwrap();
                let mut def = MapDef::new(w[0], kind, n(2), n(3), n(4));
                for x in &w[5..] {
                    if let Some(i) = x.strip_prefix("inner=") {
                        def.inner = maps.iter().find(|m| m.name == i).cloned().map(Box::new);
                    } else if let Some(d) = x.strip_prefix("data=") {
                        def.frozen = Some(
                            (0..d.len() / 2)
                                .map(|i| u8::from_str_radix(&d[2 * i..2 * i + 2], 16).unwrap())
                                .collect::<Vec<_>>()
                                .into(),
                        );
                    } else if let Some((what, at)) = x.split_once('@') {
                        let at = at.split('=').next().unwrap();
                        let (kind, size) = match what {
                            "lock" => (SpecialKind::SpinLock, 4),
                            "timer" => (SpecialKind::Timer, 16),
                            "wq" => (SpecialKind::Workqueue, 16),
                            _ => (SpecialKind::Kptr { to: 1 }, 8),
                        };
                        def.fields.push(SpecialField { kind, offset: at.parse().unwrap(), size });
                    } else {
                        def.flags = def.flags.union(match *x {
                            "rdonly_prog" => MapFlags::RDONLY_PROG,
                            "wronly_prog" => MapFlags::WRONLY_PROG,
                            "no_prealloc" => MapFlags::NO_PREALLOC,
                            _ => MapFlags(0),
                        });
                    }
                }
                maps.push(def);
            }
            let mut insns = insns.split("\n\n").next().unwrap().to_owned();
            for (i, m) in maps.iter().enumerate() {
                insns = insns
                    .replace(&format!("map[{}]", m.name), &format!("map[{i}]"))
                    .replace(&format!("map_value[{}]", m.name), &format!("map_value[{i}]"));
            }
            let list = match assemble(&insns) {
                Ok(l) => l,
                Err(e) => {
                    println!("{name}\tASM {e}");
                    continue;
                }
            };
            let mut starts = BTreeMap::from([(0u32, "main".to_owned())]);
            for (slot, insn) in list.iter().enumerate() {
                if let Insn::Call { target: CallTarget::Local(d) } = insn {
                    starts.insert((slot as i64 + 1 + i64::from(*d)) as u32, "f".into());
                }
            }
            let mut source = ProgramSource::new("p", section.kind, list);
            source.sleepable = section.sleepable;
            source.target = section.target.map(str::to_owned);
            source.functions = starts.into_iter().map(|(s, n)| Function::new(n, s, false)).collect();
            source.gpl_compatible = get("license:").is_none_or(|l| l.contains("GPL"));
            let strict = get("flags:").is_some_and(|f| f.contains("strict_alignment"));
            let config = Config { strict_alignment: strict, ..Config::default() };
            match verify(Unverified { source, maps: maps.into(), entry: skep_abi::Entry::Context }, &config) {
                Ok(_) => println!("{name}\taccept\t"),
                Err(r) => println!("{name}\trefuse: {}\t{}", r.code.name(), r),
            }
        }
    }
}
