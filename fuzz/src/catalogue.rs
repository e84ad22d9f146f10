//! A catalogue file of a user.

use pciescope_catalogue::Catalogue;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(catalogue) = Catalogue::parse(&[("input.toml", text)]) else { return };
    for kind in catalogue.kinds() {
        let _ = kind.bdf("dwc_rootport_10");
        let _ = kind.metrics_for(&["lane"], &["eventid"]);
    }
}
