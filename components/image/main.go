// Command image writes one OCI image as a tar: uncompressed layers, the same bytes from the same inputs.
//
//	image -out FILE -name REFERENCE [-name ALIAS] [-base LAYER.tar ...] [-user UID:GID]
//	      -add FILE=/path ... -setuid /path ... -link /path=target ... -entrypoint /path -cmd ARGUMENT ...
package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"runtime"
	"sort"
	"strings"
	"time"
)

var epoch = time.Unix(1700000000, 0).UTC()

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Recipe says what an image holds.
type Recipe struct {
	Names      []string          // references; the first is the image's own, the others are aliases
	Bases      []string          // layers to put under the files, as tars, the lowest first
	Files      map[string]string // path in the image -> file here
	Setuid     map[string]bool   // files that run with the rights of their owner and group, which are root
	Links      map[string]string // path in the image -> target
	Entrypoint string
	Command    []string // arguments of the entrypoint, or a program and its arguments if there is none
	User       string
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// blob is content known by its digest: short ones in memory, layers in a file.
type blob struct {
	descriptor
	bytes []byte
	file  string
}

func describe(mediaType string, size int64, sum hash.Hash) descriptor {
	return descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: size}
}

func fromJSON(mediaType string, value any) (blob, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return blob{}, err
	}
	sum := sha256.New()
	sum.Write(text)
	return blob{descriptor: describe(mediaType, int64(len(text)), sum), bytes: text}, nil
}

func fromFile(mediaType, file string) (blob, error) {
	f, err := os.Open(file)
	if err != nil {
		return blob{}, err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	return blob{descriptor: describe(mediaType, size, sum), file: file}, err
}

func header(name string, kind byte, mode int64) *tar.Header {
	return &tar.Header{Typeflag: kind, Name: strings.TrimPrefix(name, "/"), Mode: mode, ModTime: epoch, Format: tar.FormatUSTAR}
}

// parents lists the folders above the paths, parents first.
func parents(paths []string) []string {
	seen := map[string]bool{}
	for _, p := range paths {
		for dir := path.Dir(p); dir != "/" && dir != "."; dir = path.Dir(dir) {
			seen[dir] = true
		}
	}
	return sorted(seen)
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// layer writes the image's own files: folders, /tmp, the user table, binaries and links, in that order.
func (r Recipe) layer(to io.Writer) error {
	w := tar.NewWriter(to)
	passwd := []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n" +
		"nonroot:x:65532:65532:nonroot:/nonexistent:/sbin/nologin\n")
	for _, dir := range parents(append(append(sorted(r.Files), sorted(r.Links)...), "/etc/passwd")) {
		if err := w.WriteHeader(header(dir+"/", tar.TypeDir, 0o755)); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(header("tmp/", tar.TypeDir, 0o1777)); err != nil {
		return err
	}
	h := header("/etc/passwd", tar.TypeReg, 0o644)
	h.Size = int64(len(passwd))
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if _, err := w.Write(passwd); err != nil {
		return err
	}
	for _, name := range sorted(r.Files) {
		mode := int64(0o755)
		if r.Setuid[name] {
			mode = 0o6755
		}
		if err := copyIn(w, header(name, tar.TypeReg, mode), r.Files[name]); err != nil {
			return err
		}
	}
	for _, name := range sorted(r.Links) {
		h := header(name, tar.TypeSymlink, 0o777)
		h.Linkname = r.Links[name]
		if err := w.WriteHeader(h); err != nil {
			return err
		}
	}
	return w.Close()
}

func copyIn(w *tar.Writer, h *tar.Header, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Size = info.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// check finds what would make an image that cannot run.
func (r Recipe) check() error {
	if len(r.Names) == 0 {
		return errors.New("an image needs a name")
	}
	if r.Entrypoint == "" && len(r.Command) == 0 {
		return errors.New("an image needs an entrypoint or a command")
	}
	if r.Entrypoint != "" && r.Files[r.Entrypoint] == "" && len(r.Bases) == 0 {
		return fmt.Errorf("the entrypoint %s is not among the files, and there is no base that could have it", r.Entrypoint)
	}
	for name := range r.Setuid {
		if r.Files[name] == "" {
			return fmt.Errorf("%s is to be setuid and is not among the files", name)
		}
	}
	return nil
}

// Write makes the image at file: all of it or nothing.
func (r Recipe) Write(file string) (err error) {
	if err := r.check(); err != nil {
		return err
	}
	const layerType = "application/vnd.oci.image.layer.v1.tar"
	var layers []blob
	for _, name := range r.Bases {
		base, err := fromFile(layerType, name)
		if err != nil {
			return err
		}
		layers = append(layers, base)
	}
	own := file + ".layer"
	defer os.Remove(own)
	if err := create(own, r.layer); err != nil {
		return err
	}
	top, err := fromFile(layerType, own)
	if err != nil {
		return err
	}
	layers = append(layers, top)

	diffs := []string{}
	descriptors := []descriptor{}
	for _, l := range layers {
		diffs = append(diffs, l.Digest) // the layers are not compressed: their digest is their content's
		descriptors = append(descriptors, l.descriptor)
	}
	settings := map[string]any{"Env": []string{searchPath}, "WorkingDir": "/"}
	if r.Entrypoint != "" {
		settings["Entrypoint"] = []string{r.Entrypoint}
	}
	if len(r.Command) > 0 {
		settings["Cmd"] = r.Command
	}
	if r.User != "" {
		settings["User"] = r.User
	}
	config, err := fromJSON("application/vnd.oci.image.config.v1+json", map[string]any{
		"created": epoch.Format(time.RFC3339), "architecture": runtime.GOARCH, "os": "linux",
		"config": settings, "rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
	})
	if err != nil {
		return err
	}
	manifest, err := fromJSON("application/vnd.oci.image.manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config.descriptor, "layers": descriptors,
	})
	if err != nil {
		return err
	}
	named := []descriptor{}
	for _, name := range r.Names {
		d := manifest.descriptor
		d.Annotations = map[string]string{
			"io.containerd.image.name":          name,
			"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:],
		}
		named = append(named, d)
	}
	index, err := fromJSON("application/vnd.oci.image.index.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": named,
	})
	if err != nil {
		return err
	}
	return create(file, func(to io.Writer) error {
		return pack(to, index.bytes, append([]blob{manifest, config}, layers...))
	})
}

// pack writes the layout: the index first, so that a reader knows what follows.
func pack(to io.Writer, index []byte, blobs []blob) error {
	w := tar.NewWriter(to)
	put := func(name string, content []byte) error {
		h := header(name, tar.TypeReg, 0o644)
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(w, bytes.NewReader(content))
		return err
	}
	if err := put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	if err := put("index.json", index); err != nil {
		return err
	}
	for _, dir := range []string{"blobs/", "blobs/sha256/"} {
		if err := w.WriteHeader(header(dir, tar.TypeDir, 0o755)); err != nil {
			return err
		}
	}
	for _, b := range blobs {
		name := "blobs/sha256/" + strings.TrimPrefix(b.Digest, "sha256:")
		var err error
		if b.file == "" {
			err = put(name, b.bytes)
		} else {
			err = copyIn(w, header(name, tar.TypeReg, 0o644), b.file)
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// create writes a file under another name first and leaves nothing behind on failure.
func create(file string, fill func(io.Writer) error) error {
	part := file + ".part"
	f, err := os.Create(part)
	if err != nil {
		return err
	}
	err = errors.Join(fill(f), f.Close())
	if err == nil {
		err = os.Rename(part, file)
	}
	if err != nil {
		os.Remove(part)
	}
	return err
}

// pairs collects a=b flags; keyFirst says that the path in the image is on the left.
func pairs(into map[string]string, keyFirst bool) func(string) error {
	return func(text string) error {
		left, right, ok := strings.Cut(text, "=")
		if !ok || left == "" || right == "" {
			return fmt.Errorf("%q is not of the form a=b", text)
		}
		key, value := right, left
		if keyFirst {
			key, value = left, right
		}
		if !path.IsAbs(key) || path.Clean(key) != key {
			return fmt.Errorf("%q is not a clean absolute path", key)
		}
		into[key] = value
		return nil
	}
}

// more collects a flag that may be repeated.
func more(into *[]string) func(string) error {
	return func(text string) error {
		*into = append(*into, text)
		return nil
	}
}

func main() {
	r := Recipe{Files: map[string]string{}, Setuid: map[string]bool{}, Links: map[string]string{}}
	out := flag.String("out", "", "the tar to write")
	flag.StringVar(&r.User, "user", "", "UID:GID to run as")
	flag.StringVar(&r.Entrypoint, "entrypoint", "", "the program to run")
	flag.Func("name", "a reference; may be repeated", more(&r.Names))
	flag.Func("base", "a layer to put under the files; may be repeated, the lowest first", more(&r.Bases))
	flag.Func("cmd", "an argument of the entrypoint; may be repeated", more(&r.Command))
	flag.Func("add", "FILE=/path in the image", pairs(r.Files, false))
	flag.Func("setuid", "/path of a file that runs as root", func(s string) error { r.Setuid[s] = true; return nil })
	flag.Func("link", "/path in the image=target", pairs(r.Links, true))
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := r.Write(*out); err != nil {
		fmt.Fprintf(os.Stderr, "image %s: %v\n", *out, err)
		os.Exit(1)
	}
}
