//! The files that are built in. A test compares this list with the folder.

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// The files of `catalogue/`: name and text.
        pub const FILES: [(&str, &str); [$($name),*].len()] =
            [$(($name, include_str!(concat!("../../../catalogue/", $name)))),*];
    };
}

files![
    "ali_drw.toml",
    "amd_df.toml",
    "amd_umc.toml",
    "ampere_mcu.toml",
    "arm_cmn.toml",
    "dwc_endpoint.toml",
    "dwc_rootport.toml",
    "hisi_ddrc_v1.toml",
    "hisi_ddrc_v2.toml",
    "hisi_pcie.toml",
    "imx8_ddr.toml",
    "imx8mn_ddr.toml",
    "imx8mp_ddr.toml",
    "imx93_ddr.toml",
    "imx95_ddr.toml",
    "kernel.toml",
    "meson_ddr.toml",
    "mrvl_ddr.toml",
    "mrvl_pcie_rc.toml",
    "nvidia_pcie.toml",
    "nvidia_pcie_t410.toml",
    "nvidia_scf.toml",
    "nvidia_ucf.toml",
    "pcie_bdf.toml",
    "uncore_iio.toml",
    "uncore_iio_free_running.toml",
    "uncore_imc.toml",
    "uncore_imc_free_running.toml",
];
