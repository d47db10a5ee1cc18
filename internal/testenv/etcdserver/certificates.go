package etcdserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Certificates are an authority made at run time, and what it signs.
type Certificates struct {
	dir       string
	authority *x509.Certificate
	key       crypto.Signer
}

// NewCertificates makes an authority and a server's certificate for 127.0.0.1, and
// writes into dir what a server reads: ca.pem, server.pem and server-key.pem.
func NewCertificates(dir string) (*Certificates, error) {
	c := &Certificates{dir: dir}
	authority, err := c.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "fencekit testenv"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return nil, err
	}
	if c.authority, err = x509.ParseCertificate(authority.Certificate[0]); err != nil {
		return nil, err
	}
	c.key = authority.PrivateKey.(crypto.Signer)
	server, err := c.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "etcd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		// etcd's own gateway dials the server, with the server's certificate.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	_, _, err = c.writePair("server", server)
	return c, errors.Join(err, c.write("ca.pem", "CERTIFICATE", c.authority.Raw))
}

// Client is what a client with a certificate of that name needs, which is etcd's user where it requires
// authentication.
func (c *Certificates) Client(name string) (*tls.Config, error) {
	cert, err := c.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(c.authority)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// CA is the file of the authority's certificate.
func (c *Certificates) CA() string { return c.path("ca.pem") }

// WriteClient writes a client's certificate and key, and returns the files.
func (c *Certificates) WriteClient(name string, expires time.Time) (cert, key string, err error) {
	signed, err := c.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: expires,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, // a server's too, for one that pretends to be etcd
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return "", "", err
	}
	return c.writePair(name, signed)
}

func (c *Certificates) writePair(name string, signed tls.Certificate) (cert, key string, err error) {
	der, err := x509.MarshalPKCS8PrivateKey(signed.PrivateKey)
	if err != nil {
		return "", "", err
	}
	cert, key = name+".pem", name+"-key.pem"
	err = errors.Join(c.write(cert, "CERTIFICATE", signed.Certificate[0]), c.write(key, "PRIVATE KEY", der))
	return c.path(cert), c.path(key), err
}

func (c *Certificates) serverFlags() []string {
	return []string{
		"--client-cert-auth", "--trusted-ca-file=" + c.CA(),
		"--cert-file=" + c.path("server.pem"), "--key-file=" + c.path("server-key.pem"),
	}
}

// sign completes a certificate and signs it; without an authority by itself.
func (c *Certificates) sign(cert *x509.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert.SerialNumber = big.NewInt(time.Now().UnixNano())
	cert.NotBefore = time.Now().Add(-time.Hour)
	if cert.NotAfter.IsZero() {
		cert.NotAfter = time.Now().Add(24 * time.Hour)
	}
	parent, signer := c.authority, c.key
	if parent == nil {
		parent, signer = cert, key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func (c *Certificates) path(name string) string { return filepath.Join(c.dir, name) }

func (c *Certificates) write(name, kind string, der []byte) error {
	return os.WriteFile(c.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
