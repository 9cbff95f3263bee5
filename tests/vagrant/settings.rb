# Prints the provider settings of a Vagrantfile as JSON: ruby settings.rb FOLDER PROVIDER. Starts nothing.
require "json"
require "vagrant"
require "vagrant/plugin/manager"

folder, provider = ARGV
Vagrant::Plugin::Manager.instance.load_plugins(Vagrant::Plugin::Manager.instance.installed_plugins)
env = Vagrant::Environment.new(cwd: folder, ui_class: Vagrant::UI::Silent)
machines = env.machine_names.map do |name|
  config = env.vagrantfile.machine_config(name, provider.to_sym, env.boxes, env.local_data_path.join("machines", name.to_s))[:config]
  settings = config.vm.get_provider_config(provider.to_sym)
  {
    name: name,
    hostname: config.vm.hostname,
    box: config.vm.box,
    networks: config.vm.networks.select { |kind, _| kind == :private_network }.map { |_, options| options[:ip] },
    memory: settings.respond_to?(:memory) ? settings.memory : nil,
    cpus: settings.respond_to?(:cpus) ? settings.cpus : nil,
    customizations: settings.respond_to?(:customizations) ? settings.customizations : nil
  }
end
puts JSON.generate(machines)
