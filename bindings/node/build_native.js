'use strict';
/*
 * Compiles the addon without further tools: node build_native.js LIBRARY_DIR OUTPUT_FILE.
 *
 * LIBRARY_DIR has libtopdeck.a, which `cargo build -p topdeck-ffi` builds. The headers of Node are
 * beside its executable, or of the Debian package libnode-dev.
 */
const { execFileSync } = require('node:child_process');
const { existsSync, mkdirSync, renameSync } = require('node:fs');
const path = require('node:path');

/** Directory of node_api.h, or null. */
function includeDir() {
  const beside = path.resolve(process.execPath, '../../include/node');
  return [beside, '/usr/include/node'].find((dir) => existsSync(`${dir}/node_api.h`)) ?? null;
}

function build(library, output) {
  const include = includeDir();
  if (include === null) {
    throw new Error('cannot find node_api.h; install the headers of Node (Debian: libnode-dev)');
  }
  mkdirSync(path.dirname(output), { recursive: true });
  // Another run may use the existing file.
  const made = `${output}.${process.pid}`;
  const flags = [
    '-shared', '-O2', '-fPIC', '-pthread', '-std=gnu11', '-Wall', '-Wextra', '-Werror',
  ];
  const sources = [path.join(__dirname, 'topdeck.c'), path.join(library, 'libtopdeck.a')];
  // Symbols of the library stay private; the addon stays loaded: its threads point to it.
  const link = ['-Wl,--exclude-libs,ALL', '-Wl,--gc-sections', '-Wl,-z,nodelete', '-lgcc_s', '-lm',
    '-ldl', '-lrt', '-lpthread'];
  const includes = [`-I${include}`, `-I${path.join(__dirname, '../c')}`];
  execFileSync(process.env.CC ?? 'cc', [...flags, ...includes, ...sources, ...link, '-o', made], {
    stdio: 'inherit',
  });
  renameSync(made, output);
}

module.exports = { includeDir };

if (require.main === module) {
  const [library, output] = process.argv.slice(2);
  if (library === '--check') {
    process.exit(includeDir() === null ? 1 : 0);
  }
  build(path.resolve(library), path.resolve(output));
}
