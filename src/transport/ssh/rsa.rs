//! RSA keys for the login: read here; aws-lc signs, because it does not leak through timing as other libraries do.
//!
//! In: PEM as ssh-keygen and Vagrant write it, or a key pair in OpenSSH's own format. Out: the public key, and
//! signatures with SHA-256 or SHA-512 (RFC 8332), never with SHA-1.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA512};
use num_bigint::BigUint;
use russh::keys::agent::AgentIdentity;
use russh::keys::ssh_key::Mpint;
use russh::keys::ssh_key::private::RsaKeypair;
use russh::keys::ssh_key::public::{KeyData, RsaPublicKey};
use russh::keys::{HashAlg, PublicKey};
use russh::{SendError, Signer};
use x509_parser::pem::parse_x509_pem;
use zeroize::Zeroizing;

/// A key pair that signs.
pub(super) struct RsaKey {
    pair: KeyPair,
    public: PublicKey,
}

/// Why there is no signature.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    /// The connection is gone.
    #[error("the connection is gone")]
    Gone(#[from] SendError),
    /// The host requests SHA-1, or a hash that does not fit RSA.
    #[error("the host requests RSA with a hash other than SHA-256 and SHA-512")]
    Hash,
    /// The library refuses.
    #[error("the key does not sign")]
    Refused,
}

impl RsaKey {
    /// The key of a PEM file if it is an RSA key: PKCS #1 or PKCS #8.
    pub(super) fn from_pem(text: &str) -> Option<Result<Self, String>> {
        let (_, mut pem) = parse_x509_pem(text.as_bytes()).ok()?;
        let der = Zeroizing::new(std::mem::take(&mut pem.contents));
        match pem.label.as_str() {
            "RSA PRIVATE KEY" => Some(Self::from_pkcs1(&der)),
            "PRIVATE KEY" => KeyPair::from_pkcs8(&der).ok().map(Self::of),
            _ => None,
        }
    }

    /// The key of a file in OpenSSH's own format.
    pub(super) fn from_openssh(pair: &RsaKeypair) -> Result<Self, String> {
        let number = |mpint: &Mpint| {
            mpint.as_positive_bytes().map(BigUint::from_bytes_be).ok_or("a number of the key is not positive")
        };
        let (public, private) = (pair.public(), pair.private());
        let (p, q, d) = (number(private.p())?, number(private.q())?, number(private.d())?);
        let one = BigUint::from(1_u8);
        if p <= one || q <= one {
            return Err("a factor of the key is not prime".to_owned());
        }
        // The two exponents are not in the file: RFC 8017, appendix A.1.2.
        let exponents = [&d % (&p - &one), &d % (&q - &one)];
        let all = [
            &number(public.n())?,
            &number(public.e())?,
            &d,
            &p,
            &q,
            &exponents[0],
            &exponents[1],
            &number(private.iqmp())?,
        ];
        let der = Zeroizing::new(yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_u8(0);
                for number in all {
                    writer.next().write_bigint_bytes(&Zeroizing::new(number.to_bytes_be()), true);
                }
            });
        }));
        Self::from_pkcs1(&der)
    }

    fn from_pkcs1(der: &[u8]) -> Result<Self, String> {
        let refused = |why| format!("it is not an RSA key of 2048 to 8192 bits: {why}");
        KeyPair::from_der(der).map_err(refused).and_then(Self::of)
    }

    fn of(pair: KeyPair) -> Result<Self, String> {
        // RFC 8017, appendix A.1.1: the modulus, then the exponent.
        let numbers = yasna::parse_der(pair.public_key().as_ref(), |reader| {
            reader.read_sequence(|reader| {
                Ok((reader.next().read_bigint_bytes()?.0, reader.next().read_bigint_bytes()?.0))
            })
        });
        let (modulus, exponent) = numbers.map_err(|_| "its public key cannot be parsed".to_owned())?;
        let (exponent, modulus) = (Mpint::from_positive_bytes(&exponent), Mpint::from_positive_bytes(&modulus));
        let public = RsaPublicKey::new(exponent, modulus).map_err(|error| error.to_string())?;
        Ok(Self { pair, public: PublicKey::from(KeyData::Rsa(public)) })
    }

    /// The public key.
    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// `string(string(algorithm) string(signature))`, RFC 4252 section 7.
    fn signature(&self, hash: Option<HashAlg>, data: &[u8]) -> Result<Vec<u8>, SignError> {
        let (name, encoding) = match hash {
            Some(HashAlg::Sha256) => ("rsa-sha2-256", &RSA_PKCS1_SHA256),
            Some(HashAlg::Sha512) => ("rsa-sha2-512", &RSA_PKCS1_SHA512),
            _ => return Err(SignError::Hash),
        };
        let mut signed = vec![0; self.pair.public_modulus_len()];
        let random = SystemRandom::new();
        self.pair.sign(encoding, &random, data, &mut signed).map_err(|_| SignError::Refused)?;
        let mut inside = Vec::new();
        for part in [name.as_bytes(), &signed] {
            inside.extend(length(part)?);
            inside.extend(part);
        }
        let mut whole = length(&inside)?.to_vec();
        whole.append(&mut inside);
        Ok(whole)
    }
}

fn length(bytes: &[u8]) -> Result<[u8; 4], SignError> {
    u32::try_from(bytes.len()).map(u32::to_be_bytes).map_err(|_| SignError::Refused)
}

impl Signer for RsaKey {
    type Error = SignError;

    async fn auth_sign(
        &mut self,
        _: &AgentIdentity,
        hash: Option<HashAlg>,
        mut data: Vec<u8>,
    ) -> Result<Vec<u8>, SignError> {
        let signature = self.signature(hash, &data)?;
        data.extend(signature);
        Ok(data)
    }
}
