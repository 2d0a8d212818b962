//! Metrics, read by another implementation of Prometheus's text format.

use prometheus_parse::{Scrape, Value};
use skep::abi::{MapDef, MapKind, RAW};
use skep::isa::{assemble, encode_bytes};
use skep::{Metrics, Object, Quota, Runtime, Tenant, UpdateFlags};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

fn scrape(metrics: &Metrics<'_>) -> Scrape {
    let text = metrics.to_string();
    Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap()
}

fn one<'a>(scrape: &'a Scrape, name: &str, label: (&str, &str)) -> &'a Value {
    let of = |sample: &&prometheus_parse::Sample| {
        sample.metric == name && sample.labels.get(label.0) == Some(label.1)
    };
    let found: Vec<_> = scrape.samples.iter().filter(of).collect();
    assert_eq!(found.len(), 1, "{name} {label:?}: {found:?}");
    &found[0].value
}

#[test]
fn a_parser_reads_the_numbers_of_programs_links_maps_and_memory() {
    let runtime = Runtime::new().unwrap();
    runtime.enable_stats(true);
    let tenant = Tenant::new("seven", Quota::new().map_memory(1 << 24));
    let def = MapDef::new("table", MapKind::Hash, 4, 8, 100);
    let bytes = encode_bytes(&assemble("r1 = map[0] ll\nr0 = 0\nexit").unwrap()).unwrap();
    let object = Object::from_bytecode_and_maps("main", &RAW, &bytes, vec![def]).unwrap();
    let module = runtime.linker(&object).tenant(&tenant).load().unwrap();
    let map = module.map("table").unwrap();
    (0..7_u32).for_each(|key| map.update(&key.to_ne_bytes(), &[0; 8], UpdateFlags::Any).unwrap());
    let hook = runtime.hook();
    let link = hook.attach(&module.programs()[0]).unwrap();
    for _ in 0..5 {
        hook.run_raw(&mut [], |_, _| ControlFlow::Continue(())).unwrap();
    }
    module.programs()[0].run_raw(&mut []).unwrap();

    let found = scrape(&Metrics::new().runtime("r", &runtime).tenant(&tenant));
    for (name, label, stats) in [
        ("skep_program_run_seconds", ("tenant", "seven"), module.programs()[0].stats()),
        ("skep_link_run_seconds", ("program", "main"), link.stats()),
    ] {
        let Value::Histogram(counts) = one(&found, name, label) else { panic!("{found:?}") };
        assert!(counts.windows(2).all(|pair| pair[0].count <= pair[1].count), "{counts:?}");
        assert_eq!(counts.last().unwrap().less_than, f64::INFINITY);
        assert_eq!(counts.last().unwrap().count, stats.run_cnt as f64);
        for bucket in counts.iter().filter(|bucket| bucket.less_than.is_finite()) {
            let bound = (bucket.less_than * 1e9).round() as u64;
            let below = stats.times.buckets().filter(|known| known.to <= bound).map(|known| known.count);
            assert_eq!(below.sum::<u64>() as f64, bucket.count, "{bound}");
        }
        let Value::Untyped(sum) = one(&found, &format!("{name}_sum"), label) else { panic!("{found:?}") };
        assert_eq!((sum * 1e9).round() as u64, stats.run_time_ns);
    }
    assert_eq!(one(&found, "skep_map_entries", ("map", "table")), &Value::Gauge(7.0));
    assert_eq!(one(&found, "skep_map_memory_bytes", ("map", "table")), &Value::Gauge(map.memory() as f64));
    assert_eq!(
        one(&found, "skep_tenant_used", ("resource", "map_bytes")),
        &Value::Gauge(map.memory() as f64)
    );
    assert_eq!(one(&found, "skep_tenant_limit", ("resource", "map_bytes")), &Value::Gauge((1 << 24) as f64));
    let used = runtime.occupancy().used_bytes as f64;
    assert_eq!(one(&found, "skep_code_memory_bytes", ("state", "used")), &Value::Gauge(used));
}

#[test]
fn names_from_object_files_stay_inside_of_their_label() {
    let runtime = Runtime::new().unwrap();
    let name = "evil\"} 1\nskep_fake 2\n\\";
    let object = Object::from_insns(name, &RAW, assemble("r0 = 0\nexit").unwrap());
    let _modules = [runtime.load(&object).unwrap(), runtime.load(&object).unwrap()];
    let metrics = Metrics::new().runtime("a", &runtime).runtime("b\\", &runtime).to_string();
    assert!(metrics.lines().all(|line| line.starts_with("# ") || line.starts_with("skep_")));
    assert!(!metrics.lines().any(|line| line.starts_with("skep_fake")));
    let escaped = r#"program="evil\"} 1\nskep_fake 2\n\\""#;
    assert_eq!(metrics.matches(&format!("{escaped},type")).count(), 2 * 2 * (26 + 2 + 2));
    // No sample twice, and each family in one piece.
    let mut seen = BTreeSet::new();
    assert!(metrics.lines().all(|line| seen.insert(line.rsplit_once(' ').unwrap().0)), "{metrics}");
}

#[test]
fn what_is_gone_has_no_metrics() {
    let runtime = Runtime::new().unwrap();
    let object = Object::from_insns("gone", &RAW, assemble("r0 = 0\nexit").unwrap());
    drop(runtime.load(&object).unwrap());
    let text = Metrics::new().runtime("r", &runtime).to_string();
    assert!(!text.contains("gone"), "{text}");
}
