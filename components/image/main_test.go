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
		Names: []string{"example.org/a/b:v1", "example.org/a/b:v2"}, Bases: []string{base}, Entrypoint: "/usr/local/bin/b",
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

// written writes an image and reads it back: a descriptor for each name, the layers and the config. Every blob has the
// digest that it is named by.
func written(t *testing.T, recipe Recipe, dir string) ([]descriptor, [][]byte, []byte) {
	t.Helper()
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
	for _, m := range index.Manifests {
		if err := json.Unmarshal(blob(m.Digest), &manifest); err != nil {
			t.Fatal(err)
		}
	}
	layers := [][]byte{}
	for _, l := range manifest.Layers {
		layers = append(layers, blob(l.Digest))
	}
	return index.Manifests, layers, blob(manifest.Config.Digest)
}

func TestEveryBlobHasItsDigestAndEveryNameItsManifest(t *testing.T) {
	recipe, dir := sample(t)
	manifests, layers, config := written(t, recipe, dir)
	if len(manifests) != 2 {
		t.Fatalf("%d names", len(manifests))
	}
	for i, m := range manifests {
		if m.Annotations["io.containerd.image.name"] != recipe.Names[i] {
			t.Errorf("name %d is %v", i, m.Annotations)
		}
	}
	if len(layers) != 2 || string(layers[0]) != "a layer" {
		t.Fatal("the base is not the first layer, byte for byte")
	}
	if own := read(t, layers[1]); string(own["usr/local/bin/b"]) != "a program" {
		t.Error("the program is not in its layer")
	}
	if !bytes.Contains(config, []byte(`"Entrypoint":["/usr/local/bin/b"]`)) || bytes.Contains(config, []byte(`"Cmd"`)) {
		t.Errorf("the config is %s", config)
	}
}

func TestBasesKeepTheirOrderAndOnlySetuidFilesAreSetuid(t *testing.T) {
	recipe, dir := sample(t)
	upper := filepath.Join(dir, "upper.tar")
	if err := os.WriteFile(upper, []byte("another layer"), 0o600); err != nil {
		t.Fatal(err)
	}
	recipe.Bases = append(recipe.Bases, upper)
	recipe.Files["/usr/local/bin/c"] = recipe.Files["/usr/local/bin/b"]
	recipe.Setuid = map[string]bool{"/usr/local/bin/c": true}
	_, layers, _ := written(t, recipe, dir)
	if len(layers) != 3 || string(layers[0]) != "a layer" || string(layers[1]) != "another layer" {
		t.Fatal("the bases are not in their order")
	}
	modes := map[string]int64{}
	for r := tar.NewReader(bytes.NewReader(layers[2])); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
	}
	if modes["usr/local/bin/b"] != 0o755 || modes["usr/local/bin/c"] != 0o6755 {
		t.Errorf("the modes are %v", modes)
	}
}

func TestACommandNeedsNoEntrypointAndOneOfBothIsNeeded(t *testing.T) {
	recipe, dir := sample(t)
	recipe.Command = []string{"c", "d"}
	_, _, config := written(t, recipe, dir)
	if !bytes.Contains(config, []byte(`"Cmd":["c","d"],"Entrypoint":["/usr/local/bin/b"]`)) {
		t.Errorf("the config is %s", config)
	}
	recipe.Entrypoint = ""
	_, _, config = written(t, recipe, dir)
	if !bytes.Contains(config, []byte(`"Cmd":["c","d"]`)) || bytes.Contains(config, []byte("Entrypoint")) {
		t.Errorf("the config is %s", config)
	}
	recipe.Command = nil
	if err := recipe.Write(filepath.Join(dir, "neither.tar")); err == nil {
		t.Error("an image without an entrypoint and a command was written")
	}
	recipe.Entrypoint, recipe.Bases = "/missing", nil
	if err := recipe.Write(filepath.Join(dir, "missing.tar")); err == nil {
		t.Error("an image was written whose entrypoint is nowhere")
	}
	recipe.Entrypoint, recipe.Setuid = "/usr/local/bin/b", map[string]bool{"/missing": true}
	if err := recipe.Write(filepath.Join(dir, "setuid.tar")); err == nil {
		t.Error("an image was written without the file that is to be setuid")
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
