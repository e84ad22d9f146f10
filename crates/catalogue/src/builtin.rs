//! The files that are built in. A test holds this list against the folder.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// The files of `catalogue/`: name and text.
        pub const FILES: [(&str, &str); [$($name),*].len()] =
            [$(($name, include_str!(concat!("../../../catalogue/", $name)))),*];
    };
}

files!["ali_drw.toml", "dwc_endpoint.toml", "dwc_rootport.toml", "pcie_bdf.toml"];
