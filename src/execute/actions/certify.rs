//! Certificates: keys are made on the host, and the CA signs here.

use crate::execute::act::{Doing, failed, unexpected};
use crate::execute::walk::StepError;
use crate::model::names::HostName;
use crate::model::target::CertId;
use crate::protocol::{Op, Reply};

impl Doing<'_> {
    /// Makes keys on the host, signs its requests, and installs the certificates.
    pub(super) async fn certify(&self, host: &HostName, ids: &[CertId]) -> Result<(), StepError> {
        let all = self.target.hosts.get(host).map(|t| t.leaves.as_slice()).unwrap_or_default();
        let leaves: Vec<_> = all.iter().filter(|l| ids.contains(&l.id)).cloned().collect();
        let reply = self.call(host, Op::MakeKeys { leaves: leaves.clone() }).await?;
        let Reply::Requests(requests) = reply else { return Err(unexpected(&reply)) };
        let mut certs = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let request = requests.get(&leaf.id);
            let request = request.ok_or_else(|| failed(format!("{host} made no request for {}", leaf.id)))?;
            let pem = (self.sign)(&leaf, request).map_err(failed)?;
            certs.push((leaf, pem));
        }
        self.call(host, Op::InstallCerts { certs }).await.map(drop)
    }
}
