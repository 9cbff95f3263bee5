//! `hactl inventory import ansible|kubespray|k0sctl|vagrant`: converts the file of another tool, or the machines of
//! Vagrant, to an inventory.
//!
//! In: parsed flags. Out: the inventory on `out` or in a new file, warnings on `err`, and an exit code: 0 done, 1 could
//! not write, 2 the file or the flags do not make an inventory, 3 refused to overwrite. JSON output always has one
//! shape.

use crate::inventory::import::{self, ImportError, Imported, Tool, Wishes};
use crate::inventory::{Disk, Source};
use crate::report::Exit;
use crate::report::harmless;
use clap::{Args, Subcommand};
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `hactl inventory import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The tool that the file belongs to.
    #[command(subcommand)]
    pub tool: ImportTool,
}

/// The tools.
#[derive(Debug, Subcommand)]
pub enum ImportTool {
    /// Import an Ansible inventory (INI or YAML) with the group_vars and host_vars beside it
    #[command(after_help = "Examples:\n  hactl inventory import ansible --vip 10.0.0.100 hosts.ini > hactl.yaml\n  \
        hactl inventory import ansible --local --role api=control-plane,etcd --role web=worker hosts.yml\n  \
        ansible-inventory -i aws_ec2.yml --list --yaml | hactl inventory import ansible --local -")]
    Ansible(AnsibleArgs),
    /// Import a Kubespray inventory and its group_vars
    #[command(after_help = "Examples:\n  hactl inventory import kubespray inventory/prod/hosts.yaml > hactl.yaml\n  \
        hactl inventory import kubespray --vip 10.0.0.100 --file prod.yaml inventory/prod/")]
    Kubespray(AnsibleArgs),
    /// Import a k0sctl.yaml
    #[command(after_help = "Examples:\n  hactl inventory import k0sctl k0sctl.yaml > hactl.yaml\n  \
        hactl inventory import k0sctl --vip 10.0.0.100 --address w1.example.org=10.0.0.21 k0sctl.yaml")]
    K0sctl(CommonArgs),
    /// Import the machines of a Vagrantfile, as reported by Vagrant
    #[command(after_help = "Examples:\n  hactl inventory import vagrant . > hactl.yaml\n  \
        hactl inventory import vagrant --role alice=control-plane,etcd --role bob=worker --vip 192.168.56.90 ~/lab\n\n\
        Roles come from names: cp1, master-2, etcd1, lb1, worker3. `hactl up -i vagrant:DIR` requires no file.")]
    Vagrant(VagrantArgs),
}

/// Arguments of `import vagrant`.
#[derive(Debug, Args)]
pub struct VagrantArgs {
    /// The directory of the Vagrantfile
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Write the inventory to this file; never overwrites [default: standard output]
    #[arg(short, long, visible_alias = "to", value_name = "NAME")]
    file: Option<PathBuf>,
    /// Name of the cluster [default: vagrant]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Virtual IP of the endpoint: a free address of the machines' network [default: its 100th]
    #[arg(long, value_name = "ADDRESS")]
    vip: Option<String>,
    /// Roles of a machine: control-plane, etcd, load-balancer, worker, spare; may be repeated
    #[arg(long = "role", value_name = "NAME=ROLE[,ROLE]")]
    roles: Vec<String>,
}

/// Arguments for all tools.
#[derive(Debug, Args)]
pub struct CommonArgs {
    /// The file; `-` reads standard input
    #[arg(value_name = "FILE")]
    pub from: OsString,
    /// Write the inventory to this file; never overwrites [default: standard output]
    #[arg(short, long, visible_alias = "to", value_name = "NAME")]
    pub file: Option<PathBuf>,
    /// Name of the cluster
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Endpoint: a virtual IP that hactl manages, a free address of the hosts' network
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["external", "local"])]
    pub vip: Option<String>,
    /// Endpoint: your own load balancer
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "local")]
    pub external: Option<String>,
    /// Endpoint: a local load balancer on every Node
    #[arg(long)]
    pub local: bool,
    /// Address of a host for which the file only has a name; may be repeated
    #[arg(long = "address", value_name = "HOST=ADDRESS")]
    pub addresses: Vec<String>,
}

/// Arguments for inventories with groups.
#[derive(Debug, Args)]
pub struct AnsibleArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Roles of the hosts of a group: control-plane, etcd, load-balancer, worker, spare; may be repeated
    #[arg(long = "role", value_name = "GROUP=ROLE[,ROLE]")]
    roles: Vec<String>,
}

/// Runs the import and returns the exit code.
pub fn run(args: &ImportArgs, as_json: bool, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let (tool, common, roles) = match &args.tool {
        ImportTool::Vagrant(args) => return vagrant(args, as_json, out, err),
        ImportTool::Ansible(args) => (Tool::Ansible, &args.common, args.roles.as_slice()),
        ImportTool::Kubespray(args) => (Tool::Kubespray, &args.common, args.roles.as_slice()),
        ImportTool::K0sctl(args) => (Tool::K0sctl, args, &[][..]),
    };
    let wishes = Wishes {
        cluster: common.cluster.clone(),
        vip: common.vip.clone(),
        external: common.external.clone(),
        local: common.local,
        roles: roles.to_vec(),
        addresses: common.addresses.clone(),
        base: Some(base(common.file.as_deref())?),
    };
    let source = Source::from(common.from.as_os_str());
    let imported = import::read(tool, &source, &Disk).and_then(|input| import::import(tool, &input, &wishes, &Disk));
    end(imported, common.file.as_deref(), as_json, out, err)
}

/// Imports the machines of a Vagrantfile.
fn vagrant(args: &VagrantArgs, as_json: bool, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let wishes = Wishes {
        cluster: args.cluster.clone(),
        vip: args.vip.clone(),
        roles: args.roles.clone(),
        base: Some(base(args.file.as_deref())?),
        ..Wishes::default()
    };
    writeln!(err, "asking Vagrant about its machines in {}", args.dir.display())?;
    end(import::vagrant(&args.dir, &wishes), args.file.as_deref(), as_json, out, err)
}

/// The directory of the inventory to write.
fn base(file: Option<&Path>) -> io::Result<PathBuf> {
    let folder = file.and_then(Path::parent).unwrap_or_else(|| Path::new(""));
    std::path::absolute(Path::new(".").join(folder))
}

/// Writes the inventory, or the reason why there is none.
fn end(
    imported: Result<Imported, ImportError>,
    file: Option<&Path>,
    as_json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Exit> {
    let imported = match imported {
        Ok(imported) => imported,
        Err(error) => return refused(&error, as_json, out, err),
    };
    if let Some(file) = file
        && let Err(unwritten) = super::new_file::write(file, &imported.text)
    {
        let said = unwritten.to_string();
        if as_json {
            let value = json!({"inventory": null, "warnings": imported.warnings, "errors": [{"what": said}]});
            writeln!(out, "{}", harmless::json(&value))?;
        } else {
            writeln!(err, "error: {said}")?;
        }
        return Ok(unwritten.exit);
    }
    stated(&imported, file, as_json, out, err)
}

fn stated(
    imported: &Imported,
    file: Option<&Path>,
    as_json: bool,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Exit> {
    if as_json {
        let value = json!({"inventory": imported.text, "warnings": imported.warnings, "errors": []});
        writeln!(out, "{}", harmless::json(&value))?;
        return Ok(Exit::Done);
    }
    for warning in &imported.warnings {
        writeln!(err, "{warning}\n")?;
    }
    match imported.warnings.len() {
        0 => {}
        1 => writeln!(err, "1 warning")?,
        n => writeln!(err, "{n} warnings")?,
    }
    match file {
        None => write!(out, "{}", imported.text)?,
        Some(file) => {
            let shown = file.display();
            writeln!(out, "wrote {shown}\nnext: hactl inventory check {shown}")?;
        }
    }
    Ok(Exit::Done)
}

fn refused(error: &ImportError, as_json: bool, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<Exit> {
    let (errors, warnings, mark) = match error {
        ImportError::Broken { broken, warnings } => (json!(broken), json!(warnings), ""),
        other => (json!([{"what": other.to_string()}]), json!([]), "error: "),
    };
    if as_json {
        writeln!(out, "{}", harmless::json(&json!({"inventory": null, "warnings": warnings, "errors": errors})))?;
    } else {
        writeln!(err, "{mark}{error}")?;
    }
    Ok(Exit::Usage)
}
