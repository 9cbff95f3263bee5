// What Kubernetes' own programs make of a certificate request: kubelets write them, API server and controller manager read and sign them.
// Only Go's standard library, called as they call it (client-go: util/cert/csr.go; kubernetes: pkg/apis/certificates/helpers.go and
// pkg/controller/certificates/authority). In: one JSON question a line. Out: one JSON answer a line.
package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"time"
)

// One of the two is asked for.
type question struct {
	Read []byte // a request, as the API holds it
	Make *asked // what a kubelet asks for
}

type asked struct {
	User string
	DNS  []string
	IPs  []net.IP
}

type answer struct {
	Error string  `json:"error,omitempty"`
	Names *signed `json:"names,omitempty"`
	Made  []byte  `json:"made,omitempty"`
}

// What stands in the certificate that the signer makes of a request.
type signed struct {
	CommonName   string   `json:"commonName"`
	Organization []string `json:"organization"`
	Key          []byte   `json:"key"`
	Names        []string `json:"names"`
	Certificate  []byte   `json:"certificate"`
}

func main() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	lines, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var ask question
		var say answer
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			panic(err)
		}
		if ask.Make != nil {
			say.Made, err = create(*ask.Make, key)
		} else {
			say.Names, err = read(ask.Read, key)
		}
		if err != nil {
			say.Error = err.Error()
		}
		if err := answers.Encode(say); err != nil {
			panic(err)
		}
	}
}

// As a kubelet does.
func create(ask asked, key *ecdsa.PrivateKey) ([]byte, error) {
	template := x509.CertificateRequest{
		SignatureAlgorithm: x509.ECDSAWithSHA256,
		Subject:            pkix.Name{CommonName: ask.User, Organization: []string{"system:nodes"}},
		DNSNames:           ask.DNS,
		IPAddresses:        ask.IPs,
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &template, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// As the controller manager does: what it reads it signs, and what it signed is answered.
func read(text []byte, key *ecdsa.PrivateKey) (*signed, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               request.Subject,
		DNSNames:              request.DNSNames,
		IPAddresses:           request.IPAddresses,
		EmailAddresses:        request.EmailAddresses,
		URIs:                  request.URIs,
		PublicKeyAlgorithm:    request.PublicKeyAlgorithm,
		PublicKey:             request.PublicKey,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		NotBefore:             time.Now(),
		NotAfter:              time.Now().Add(time.Hour),
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "signer"}, PublicKey: key.Public()}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, request.PublicKey, key)
	if err != nil {
		return nil, err
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, dns := range made.DNSNames {
		names = append(names, "DNS:"+dns)
	}
	for _, ip := range made.IPAddresses {
		names = append(names, "IP:"+ip.String())
	}
	for _, mail := range made.EmailAddresses {
		names = append(names, "email:"+mail)
	}
	for _, uri := range made.URIs {
		names = append(names, "URI:"+uri.String())
	}
	return &signed{
		CommonName:   made.Subject.CommonName,
		Organization: made.Subject.Organization,
		Key:          made.RawSubjectPublicKeyInfo,
		Names:        names,
		Certificate:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
	}, nil
}
