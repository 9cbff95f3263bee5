//! The desired state of a cluster (`Spec`), written to a file and read back.

use crate::sim::{World, config};
use crate::{act_and_rehost, check, suffer};
use hactl::observe::KnownCluster;
use hactl::reconcile::Spec;
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

pub fn spec(world: &World) -> Spec {
    let desired = Arc::new(world.desired.clone());
    let queries = world.queries(&desired);
    Spec {
        desired: world.desired.clone(),
        target: world.target.clone(),
        cluster: world.intent.cluster_id.clone(),
        known: KnownCluster::default(),
        asks: desired.entered().map(|host| (host.name.clone(), queries.of(&host.name))).collect(),
        generation: world.intent.cluster_id.stages,
    }
}

proptest! {
    #![proptest_config(config(200, 500))]

    #[test]
    fn an_up_planned_from_a_spec_in_a_file_is_the_one_planned_from_the_inventory(
        control in prop::sample::select(vec![1_u8, 3, 5]),
        acts in vec(act_and_rehost(), 0..5),
    ) {
        let mut world = World::bare(control, 1);
        check(suffer(&mut world, &acts).map_err(|b| format!("{b:?}")))?;
        let written = spec(&world);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("spec.json");
        std::fs::write(&path, serde_json::to_vec(&written).expect("it can be written")).expect("ours");
        let read: Spec = serde_json::from_slice(&std::fs::read(&path).expect("ours")).expect("it can be read");
        prop_assert_eq!(&read, &written);
        let facts = world.observe();
        let plan = |spec: &Spec| hactl::plan::up(&spec.desired, &spec.target, &facts, &world.intent);
        let planned = hactl::plan::up(&world.desired, &world.target, &facts, &world.intent);
        prop_assert_eq!(plan(&read), planned);
        for host in read.desired.entered() {
            prop_assert_eq!(read.queries().of(&host.name), written.queries().of(&host.name));
        }
    }
}
