package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sample(t *testing.T) (Recipe, string) {
	t.Helper()
	dir := t.TempDir()
	program, base := filepath.Join(dir, "program"), filepath.Join(dir, "base.tar")
	for file, text := range map[string]string{program: "a program", base: "a layer"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Recipe{
		Names: []string{"example.org/a/b:v1", "example.org/a/b:v2"}, Base: base, Entrypoint: "/usr/local/bin/b",
		Files: map[string]string{"/usr/local/bin/b": program}, Links: map[string]string{"/b": "/usr/local/bin/b"},
	}, dir
}

func read(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	entries := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryBlobHasItsDigestAndEveryNameItsManifest(t *testing.T) {
	recipe, dir := sample(t)
	out := filepath.Join(dir, "image.tar")
	if err := recipe.Write(out); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	entries := read(t, content)
	blob := func(digest string) []byte {
		found, ok := entries["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")]
		sum := sha256.Sum256(found)
		if !ok || "sha256:"+hex.EncodeToString(sum[:]) != digest {
			t.Fatalf("%s is missing or not what it says", digest)
		}
		return found
	}
	var index struct{ Manifests []descriptor }
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(entries["index.json"], &index); err != nil {
		t.Fatal(err)
	}
	if len(index.Manifests) != 2 {
		t.Fatalf("%d names", len(index.Manifests))
	}
	for i, m := range index.Manifests {
		if m.Annotations["io.containerd.image.name"] != recipe.Names[i] {
			t.Errorf("name %d is %v", i, m.Annotations)
		}
		if err := json.Unmarshal(blob(m.Digest), &manifest); err != nil {
			t.Fatal(err)
		}
	}
	if len(manifest.Layers) != 2 || string(blob(manifest.Layers[0].Digest)) != "a layer" {
		t.Fatal("the base is not the first layer, byte for byte")
	}
	if own := read(t, blob(manifest.Layers[1].Digest)); string(own["usr/local/bin/b"]) != "a program" {
		t.Error("the program is not in its layer")
	}
	if !bytes.Contains(blob(manifest.Config.Digest), []byte(`"Entrypoint":["/usr/local/bin/b"]`)) {
		t.Error("no entrypoint")
	}
}

func TestSameInputsGiveSameBytes(t *testing.T) {
	recipe, dir := sample(t)
	var first []byte
	for _, name := range []string{"one.tar", "two.tar"} {
		out := filepath.Join(dir, name)
		if err := recipe.Write(out); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && !bytes.Equal(first, content) {
			t.Fatal("two runs differ")
		}
		first = content
	}
}

func TestAFailureLeavesNothing(t *testing.T) {
	recipe, dir := sample(t)
	recipe.Files["/missing"] = filepath.Join(dir, "missing")
	if err := recipe.Write(filepath.Join(dir, "image.tar")); err == nil {
		t.Fatal("no error")
	}
	left, _ := filepath.Glob(filepath.Join(dir, "image.tar*"))
	if len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
}
