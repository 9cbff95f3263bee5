//! What a host shows of what the benchmark asks for. In: the output of the two commands that are made here, and the
//! configuration that its kubelet reports. Out: flags, texts, and files with their modes, for the checks.

use serde_json::Value;
use std::collections::BTreeMap;

pub const API: &str = "kube-apiserver";
pub const CONTROLLERS: &str = "kube-controller-manager";
pub const SCHEDULER: &str = "kube-scheduler";
pub const ETCD: &str = "etcd";
pub const KUBELET: &str = "kubelet";
pub const PROXY: &str = "kube-proxy";

/// Where tools leave the credentials of administrators.
const ADMINISTRATORS: [&str; 2] = ["/etc/kubernetes/admin.conf", "/etc/kubernetes/super-admin.conf"];
/// The configuration of the pod network, and what its plug-ins record.
const NETWORK: [&str; 2] = ["/etc/cni/net.d", "/var/lib/cni/networks"];

/// Shows the programs that run: their flags, etcd's variables, and texts that they read, as they see them. Of the
/// configuration of the encryption it shows no key. Then the files of units. It has no single quote, so that it fits
/// into a pair of them.
const SHOW: &str = r#"
flag() { tr "\0" "\n" <$p/cmdline | sed -n "s/^--$1=//p"; }
show() { [ -z "$2" ] || { printf "\n@text %s\n" "$1"; cat "$p/root$2"; }; }
for p in /proc/[0-9]*; do
  name=$(tr "\0" "\n" <$p/cmdline | head -n 1)
  name=${name##*/}
  case $name in PROGRAMS) ;; *) continue ;; esac
  printf "\n@program %s\n" "$name"
  tr "\0" "\n" <$p/cmdline
  printf "\n@variables %s\n" "$name"
  tr "\0" "\n" <$p/environ | grep ^ETCD_
  for f in config audit-policy-file client-ca-file; do show $f "$(flag $f)"; done
  show trusted-ca-file "$(tr "\0" "\n" <$p/environ | sed -n "s/^ETCD_TRUSTED_CA_FILE=//p")"
  keys=$(flag encryption-provider-config)
  [ -z "$keys" ] || { printf "\n@text providers\n"; sed -n "s/^ *- \([a-z]*\):.*/\1/p" "$p/root$keys"; }
done 2>/dev/null
for unit in UNITS; do
  printf "\n@unit %s\n" "$unit"
  systemctl show --property=FragmentPath,DropInPaths,EnvironmentFiles "$unit.service"
done
"#;

/// The command that shows these programs and units.
pub fn programs(names: &[&str], units: &[&str]) -> String {
    SHOW.replace("PROGRAMS", &names.join("|")).replace("UNITS", &units.join(" "))
}

/// The command that shows the modes and owners of files, and of folders with everything in them.
pub fn modes(files: &[String], folders: &[String]) -> String {
    let print = r#"-printf "\n@file %y %m %u:%g %p" 2>/dev/null"#;
    format!("find -L {} -maxdepth 0 {print}\nfind -L {} {print}", files.join(" "), folders.join(" "))
}

/// The parts of an output: the kind of a part, its name, and what is in it.
fn parts(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    text.split("\n@").skip(1).filter_map(|part| {
        let (head, body) = part.split_once('\n').unwrap_or((part, ""));
        let (kind, name) = head.split_once(' ')?;
        Some((kind, name, body))
    })
}

/// A program that runs.
#[derive(Debug, Clone, Default)]
pub struct Program {
    pub name: String,
    flags: Vec<String>,
    variables: BTreeMap<String, String>,
    texts: BTreeMap<String, String>,
}

/// The variable by which etcd takes a flag.
fn variable(flag: &str) -> String {
    format!("ETCD_{}", flag.replace('-', "_").to_uppercase())
}

impl Program {
    /// The value of a flag; for etcd also by its variable.
    fn value(&self, flag: &str) -> Option<&str> {
        let (bare, written) = (format!("--{flag}"), format!("--{flag}="));
        let at = self.flags.iter().rposition(|one| *one == bare || one.starts_with(&written));
        let next = |at: usize| self.flags.get(at + 1).map_or("", String::as_str);
        let given = at.map(|at| self.flags[at].strip_prefix(&written).unwrap_or_else(|| next(at)));
        given.or_else(|| self.variables.get(&variable(flag)).map(String::as_str))
    }

    fn set(&mut self, flag: &str, value: Option<String>) {
        let (bare, written) = (format!("--{flag}"), format!("--{flag}="));
        self.flags.retain(|one| *one != bare && !one.starts_with(&written));
        self.variables.remove(&variable(flag));
        self.flags.extend(value.map(|value| format!("{written}{value}")));
    }
}

/// A file or a folder.
#[derive(Debug, Clone)]
pub struct Found {
    pub is_file: bool,
    pub mode: u32,
    pub owner: String,
}

/// Files that a check judges.
pub enum Paths {
    /// Each must be there, and there must be one.
    These(Vec<String>),
    /// Those that are there.
    IfThere(Vec<String>),
}

/// What one host shows.
#[derive(Debug, Clone, Default)]
pub struct Host {
    pub name: String,
    pub programs: Vec<Program>,
    /// The files of units, by unit.
    units: BTreeMap<String, Vec<String>>,
    pub files: BTreeMap<String, Found>,
    /// The effective configuration of the kubelet.
    pub kubelet: Value,
}

impl Host {
    /// A host of which nothing was seen yet.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds what one of the commands printed.
    pub fn read(&mut self, output: &str) {
        for (kind, name, body) in parts(output) {
            let lines = || body.lines().filter(|line| !line.is_empty());
            match kind {
                "program" => {
                    let flags = lines().skip(1).map(str::to_owned).collect();
                    self.programs.push(Program { name: name.to_owned(), flags, ..Program::default() });
                }
                "variables" => {
                    let pairs = lines().filter_map(|line| line.split_once('='));
                    self.last().variables = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                }
                "text" => {
                    self.last().texts.insert(name.to_owned(), body.to_owned());
                }
                "unit" => {
                    self.units.insert(name.to_owned(), of_unit(body));
                }
                "file" => {
                    let words: Vec<&str> = name.splitn(4, ' ').collect();
                    let [what, mode, owner, path] = words[..] else { panic!("{}: {name}", self.name) };
                    let mode = u32::from_str_radix(mode, 8).expect("modes are octal");
                    self.files.insert(path.to_owned(), Found { is_file: what == "f", mode, owner: owner.to_owned() });
                }
                other => panic!("{}: {other} {name}", self.name),
            }
        }
    }

    fn last(&mut self) -> &mut Program {
        self.programs.last_mut().expect("a program is shown before what it reads")
    }

    pub fn program(&self, name: &str) -> Option<&Program> {
        self.programs.iter().find(|program| program.name == name)
    }

    fn program_mut(&mut self, name: &str) -> &mut Program {
        let found = self.programs.iter_mut().find(|program| program.name == name);
        found.expect("checks are weakened where their program runs")
    }

    /// The value of a program's flag.
    pub fn value(&self, program: &str, flag: &str) -> Option<&str> {
        self.program(program)?.value(flag)
    }

    /// A text that a program reads, empty if it reads none.
    pub fn text(&self, program: &str, name: &str) -> &str {
        self.program(program).and_then(|program| program.texts.get(name)).map_or("", String::as_str)
    }

    /// A setting of the kubelet by its JSON pointer; lists with commas.
    pub fn setting(&self, pointer: &str) -> Option<String> {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match self.kubelet.pointer(pointer)? {
            Value::Null => None,
            Value::Array(all) => Some(all.iter().map(word).collect::<Vec<_>>().join(",")),
            value => Some(word(value)),
        }
    }

    /// The file that a flag names.
    pub fn file(&self, program: &str, flag: &str) -> Paths {
        Paths::These(self.value(program, flag).map(str::to_owned).into_iter().collect())
    }

    /// The manifest of a static pod.
    pub fn manifest(&self, pod: &str) -> Paths {
        Paths::These(self.setting("/staticPodPath").map(|folder| format!("{folder}/{pod}.yaml")).into_iter().collect())
    }

    /// What starts a unit: its file, its drop-ins, and the settings that it must have.
    pub fn unit(&self, unit: &str) -> Paths {
        Paths::These(self.units.get(unit).cloned().unwrap_or_default())
    }

    /// The kubelet's CAs of clients.
    pub fn client_ca(&self) -> Paths {
        Paths::These(self.setting("/authentication/x509/clientCAFile").into_iter().collect())
    }

    /// The folder of certificates and keys, by the API server's own.
    fn pki(&self) -> Option<&str> {
        Some(self.value(API, "tls-cert-file")?.rsplit_once('/')?.0)
    }

    /// Everything in it, and itself.
    pub fn all_pki(&self) -> Paths {
        let below = |path: &&String| self.pki().is_some_and(|folder| path.starts_with(folder));
        Paths::These(self.files.keys().filter(below).cloned().collect())
    }

    /// The files in it whose names end so.
    pub fn pki_files(&self, ending: &str) -> Paths {
        let Paths::These(all) = self.all_pki() else { return Paths::These(Vec::new()) };
        Paths::These(all.into_iter().filter(|path| path.ends_with(ending)).collect())
    }

    /// The files of the pod network.
    pub fn network(&self) -> Paths {
        let below = |path: &str| NETWORK.iter().any(|folder| path.starts_with(folder));
        let files = self.files.iter().filter(|(path, found)| found.is_file && below(path));
        Paths::These(files.map(|(path, _)| path.clone()).collect())
    }

    /// Administrators' kubeconfigs. There need be none.
    pub fn administrators(&self) -> Paths {
        let all = ADMINISTRATORS.iter().filter(|path| self.files.contains_key(**path));
        Paths::IfThere(all.map(|path| (*path).to_owned()).collect())
    }

    /// The configuration of kube-proxy.
    pub fn proxy(&self) -> Value {
        serde_saphyr::from_str(self.text(PROXY, "config")).unwrap_or_default()
    }

    /// kube-proxy's kubeconfig, if it has one: as a pod it needs none.
    pub fn proxy_kubeconfig(&self) -> Paths {
        let config = self.proxy();
        let named = config["clientConnection"]["kubeconfig"].as_str().or_else(|| self.value(PROXY, "kubeconfig"));
        Paths::IfThere(named.filter(|path| !path.is_empty()).map(str::to_owned).into_iter().collect())
    }

    /// The files and the folders whose modes and owners are judged.
    pub fn places(&self) -> (Vec<String>, Vec<String>) {
        let files = [
            self.manifest(API),
            self.manifest(CONTROLLERS),
            self.manifest(SCHEDULER),
            self.unit(ETCD),
            self.unit(KUBELET),
            self.file(ETCD, "data-dir"),
            self.file(CONTROLLERS, "kubeconfig"),
            self.file(SCHEDULER, "kubeconfig"),
            self.file(KUBELET, "kubeconfig"),
            self.file(KUBELET, "config"),
            self.client_ca(),
            self.proxy_kubeconfig(),
        ];
        let named = files.into_iter().flat_map(|paths| match paths {
            Paths::These(paths) | Paths::IfThere(paths) => paths,
        });
        let files = named.chain(ADMINISTRATORS.map(str::to_owned)).collect();
        (files, NETWORK.into_iter().chain(self.pki()).map(str::to_owned).collect())
    }

    /// Changes a flag, or leaves it out.
    pub fn weaken_flag(&mut self, program: &str, flag: &str, value: Option<String>) {
        self.program_mut(program).set(flag, value);
    }

    /// The same for a setting of the kubelet.
    pub fn weaken_setting(&mut self, pointer: &str, value: Option<String>) {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer begins with a slash");
        let parent = self.kubelet.pointer_mut(parent).and_then(Value::as_object_mut).expect("the kubelet reports it");
        match value {
            Some(value) => parent.insert(key.to_owned(), value.into()),
            None => parent.remove(key),
        };
    }

    /// Gives files a mode and an owner that no check accepts.
    pub fn weaken_files(&mut self, paths: Vec<String>) {
        for path in paths {
            self.files.insert(path, Found { is_file: true, mode: 0o777, owner: "nobody:nogroup".to_owned() });
        }
    }

    /// Weakens what is judged as a whole: texts, where certificates come from, and files that hactl does not have.
    pub fn weaken_rest(&mut self) {
        self.weaken_files(ADMINISTRATORS.map(str::to_owned).into());
        if self.kubelet.is_object() {
            self.weaken_setting("/serverTLSBootstrap", None);
        }
        let clients = self.text(API, "client-ca-file").to_owned();
        for (program, name, text) in [
            (API, "providers", "resources\nidentity\nsecretbox\n"),
            (API, "audit-policy-file", "rules: [{level: None}]\n"),
            (ETCD, "trusted-ca-file", clients.as_str()),
            (PROXY, "config", "{metricsBindAddress: '0.0.0.0:10249', clientConnection: {kubeconfig: /open.conf}}\n"),
        ] {
            if self.program(program).is_some() {
                self.program_mut(program).texts.insert(name.to_owned(), text.to_owned());
            }
        }
    }
}

/// What systemd shows of a unit, without the settings that need not exist.
fn of_unit(shown: &str) -> Vec<String> {
    let lines = shown.lines().filter(|line| !line.ends_with("(ignore_errors=yes)"));
    let values = lines.filter_map(|line| line.split_once('=')).flat_map(|(_, value)| value.split(' '));
    values.filter(|word| word.starts_with('/')).map(str::to_owned).collect()
}
