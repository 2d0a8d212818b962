//! Events of `tracing`: of loads, attachments and the end of programs, and none of runs.

use skep::abi::RAW;
use skep::isa::assemble;
use skep::{Object, Quota, Runtime, Tenant};
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps events and new spans as lines of text.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Lines {
    fn add(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Text)) {
        let mut text = Text(format!("{} {}", metadata.level(), metadata.target()));
        record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "skep"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add(span.metadata(), |text| {
            write!(text.0, " span {}", span.metadata().name()).unwrap();
            span.record(text);
        });
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        self.add(event.metadata(), |text| event.record(text));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn loads_refusals_attachments_and_ends_are_events_and_runs_are_none() {
    let lines = Lines::default();
    // With one subscriber, other tests' threads, which have none, decide for all threads that nobody is interested.
    let _other = tracing::Dispatch::new(Lines::default());
    tracing::subscriber::with_default(lines.clone(), || {
        let runtime = Runtime::new().unwrap();
        let tenant = Tenant::new("seven", Quota::new());
        let object = |text: &str| Object::from_insns("main", &RAW, assemble(text).unwrap());
        let module = runtime.linker(&object("r0 = 0\nexit")).tenant(&tenant).load().unwrap();
        let span = "INFO skep span load tenant=\"seven\"";
        let common = "tenant=\"seven\" programs=\"main\"";
        assert_eq!(lines.take(), [span.to_owned(), format!("INFO skep message=loaded {common}")]);

        let hook = runtime.hook();
        let link = hook.attach(&module.programs()[0]).unwrap();
        assert_eq!(lines.take(), [format!("INFO skep message=attached {common} at=\"hook\"")]);
        (0..10).for_each(|_| assert_eq!(module.programs()[0].run_raw(&mut []).unwrap(), 0));
        hook.run_raw(&mut [], |_, _| std::ops::ControlFlow::Continue(())).unwrap();
        assert!(lines.take().is_empty());
        link.replace(&module.programs()[0]).unwrap();
        drop(link);
        let rest = format!("{common} at=\"hook\"");
        let expected = ["replaced", "detached"].map(|what| format!("INFO skep message={what} {rest}"));
        assert_eq!(lines.take(), expected);

        assert!(runtime.load(&object("exit")).is_err());
        let refused = lines.take();
        assert!(refused[1].starts_with("WARN skep message=not loaded programs=\"main\" why="), "{refused:?}");

        // Nothing else has it, so it ends on this thread.
        let gone = runtime.load(&object("r0 = 1\nexit")).unwrap();
        lines.take();
        drop(gone);
        assert_eq!(lines.take(), ["DEBUG skep message=unloaded program=\"main\"".to_owned()]);
    });
}
